package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/client/clienttest"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// Only an allow authorises the work. Against a real cluster the configuration has its nodes' addresses, and
// certificates; here it is that of a cluster in memory.
func ExampleClient_Check() {
	cluster, err := clienttest.Start(clienttest.Config{Policies: `
policies:
- {name: mails, key: [sender], limits: [{name: per-day, rollingWindow: {limit: 1, window: 24h}}]}
`})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	c, err := client.New(cluster.ClientConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		answer, err := c.Check(ctx, &quotav1.CheckRequest{Descriptors: []*quotav1.Descriptor{
			{Entries: []*quotav1.Entry{{Name: "sender", Value: []byte("ann@example.org")}}},
		}})
		cancel()
		switch {
		case err != nil:
			fmt.Println("not now:", err)
		case answer.GetDecision() != quotav1.Decision_DECISION_ALLOW:
			fmt.Printf("no; again in %d s\n", answer.GetRetryAfterS())
		default:
			fmt.Println("the mail is sent")
		}
	}
	// Output:
	// the mail is sent
	// no; again in 86573 s
}
