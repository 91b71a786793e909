package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
)

// forgetful allows everything and keeps no questions, which a benchmark would drown in.
type forgetful struct{ *asker }

func (f forgetful) Check(ctx context.Context, m *quotav1.CheckRequest) (*quotav1.Answer, error) {
	return f.check(ctx, m)
}

func forgets(c *gateway.Config) { c.Asker = forgetful{allowing()} }

// BenchmarkStream gives the cost of a check of a stream on the way through the gateway: client, transport, decoding and
// encoding on both sides, and an Asker that answers at once. One op is one check.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{1, 64, gateway.MaxChecks} {
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			s := newStand(nil, forgets)
			l := bufconn.Listen(1 << 20)
			s.Start(gateway.Listeners{GRPC: l})
			conn := dial(b, l)
			to, err := quotav1.NewQuotaClient(conn).CheckStream(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			m := message(0, uint64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += size {
				if err := to.Send(m); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < size; {
					r, err := to.Recv()
					if err != nil {
						b.Fatal(err)
					}
					got += len(r.GetAnswers())
				}
			}
			b.StopTimer()
			if err := errors.Join(conn.Close(), s.Stop(context.Background())); err != nil {
				b.Error(err)
			}
		})
	}
}

// BenchmarkFront gives the cost of one GET /check without the network.
func BenchmarkFront(b *testing.B) {
	front := newStand(nil, forgets).Front()
	r := httptest.NewRequest(http.MethodGet, "/check?principal=u42&api_class=convert", nil)
	b.ReportAllocs()
	for b.Loop() {
		front.ServeHTTP(httptest.NewRecorder(), r)
	}
}
