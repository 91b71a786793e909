package server_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

// BenchmarkStream gives the cost of a check of a stream on the way through the server: client, transport,
// decoding and encoding on both sides, and a Decider that answers at once. One op is one check.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{1, 64, server.MaxChecks} {
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) }))
			l := bufconn.Listen(1 << 20)
			n.Start(server.Listeners{GRPC: l, Ops: bufconn.Listen(1)})
			conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
			if err != nil {
				b.Fatal(err)
			}
			s, err := quotav1.NewQuotaClient(conn).CheckStream(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			m := message(0, uint64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += size {
				if err := s.Send(m); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < size; {
					r, err := s.Recv()
					if err != nil {
						b.Fatal(err)
					}
					got += len(r.GetAnswers())
				}
			}
			b.StopTimer()
			if err := conn.Close(); err != nil {
				b.Error(err)
			}
			if err := n.Stop(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
}
