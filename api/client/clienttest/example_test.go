package clienttest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/client/clienttest"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// Two conversions a minute and user: the third has to wait until the first is a minute old.
func Example() {
	cluster, err := clienttest.Start(clienttest.Config{Policies: `
policies:
- name: conversions
  key: [user]
  limits:
  - {name: per-minute, rollingWindow: {limit: 2, window: 60s}}
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

	question := &quotav1.CheckRequest{Descriptors: []*quotav1.Descriptor{
		{Entries: []*quotav1.Entry{{Name: "user", Value: []byte("u42")}}},
	}}
	ask := func() {
		answer, err := c.Check(context.Background(), question)
		if err != nil {
			fmt.Println("unavailable:", err) // the work must not be done
			return
		}
		fmt.Println(answer.GetDecision(), answer.GetRemaining(), answer.GetRetryAfterS())
	}
	ask()
	cluster.Advance(20 * time.Second)
	ask()
	ask()
	cluster.Advance(40 * time.Second)
	ask()
	// Output:
	// DECISION_ALLOW 1 0
	// DECISION_ALLOW 0 0
	// DECISION_DENY 0 41
	// DECISION_ALLOW 0 0
}

// An allow whose answer is lost is found again, and is charged once.
func ExampleServer_LoseNext() {
	cluster, err := clienttest.Start(clienttest.Config{Policies: `
policies:
- {name: jobs, global: true, limits: [{name: per-hour, rollingWindow: {limit: 5, window: 1h}}]}
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

	cluster.LoseNext()
	answer, err := c.Check(context.Background(), &quotav1.CheckRequest{Descriptors: []*quotav1.Descriptor{{}}})
	fmt.Println(answer.GetDecision(), answer.GetReplayed(), answer.GetRemaining(), err)
	// Output: DECISION_ALLOW true 4 <nil>
}
