package transport_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/transport"
)

func TestACutLinkFailsWhatIsInFlightAtOnceAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		other1, other2 := replica(t, p.l1, "n1", 2), replica(t, p.l2, "n2", 2)
		var calls sync.WaitGroup
		begun := time.Now()
		for _, r := range []*transport.Remote{p.r1, p.r1, other1} {
			calls.Go(func() {
				if err := heartbeat(r, address("n2"), 1); !errors.Is(err, transport.ErrUnreachable) || time.Since(begun) != time.Second {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		}
		time.Sleep(time.Second) // of the bubble
		p.net.cut("n2")
		calls.Wait()
		answer(t, p.r2, success)
		answer(t, other2, success)
		for _, r := range []*transport.Remote{p.r1, other1} {
			if err := heartbeat(r, address("n2"), 1); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		}
		if s := state(t, p.l1, "n2"); !s.Connected || s.Connects != 2 || s.LastError == nil || s.Since != time.Since(begun)-time.Second {
			t.Errorf("%+v", s)
		}
	})
}

// A link on which nothing comes is found even if nobody sends anything.
func TestAHalfOpenLinkIsFound(t *testing.T) {
	for _, way := range []struct{ name, from, to string }{{"requests are lost", "n1", "n2"}, {"answers are lost", "n2", "n1"}} {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				answer(t, p.r2, success)
				if err := heartbeat(p.r1, address("n2"), 1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour / 10) // of the bubble; an idle link stays
				if s := state(t, p.l1, "n2"); !s.Connected || s.Connects != 1 {
					t.Fatalf("%+v", s)
				}
				p.net.mute(way.from, way.to)
				p.net.refuse("n2", true)
				time.Sleep(5*time.Second + time.Millisecond)
				if s := state(t, p.l1, "n2"); s.Connected {
					t.Errorf("the dialling end: %+v", s)
				}
				if s := state(t, p.l2, "n1"); s.Accepted {
					t.Errorf("the accepting end: %+v", s)
				}
				p.net.heal()
				time.Sleep(time.Second)
				if err := heartbeat(p.r1, address("n2"), 1); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAPeerThatIsAwayIsTriedEverLessOftenAndFoundSoon(t *testing.T) {
	for name, away := range map[string]func(p *linked){
		"it refuses":                  func(p *linked) { p.net.refuse("n2", true) },
		"it accepts and hangs up":     func(p *linked) { p.l2.Close(); go hangUp(p.net.listen("n2")) },
		"it accepts and says nothing": func(p *linked) { p.l2.Close(); go sayNothing(p.net.listen("n2")) },
		"it takes no connection":      func(p *linked) { p.l2.Close(); p.net.listen("n2") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				away(p)
				for range 600 { // a minute of an eager leader
					_ = heartbeat(p.r1, address("n2"), 1)
					time.Sleep(100 * time.Millisecond)
				}
				if n := p.net.dialled("n2"); n < 8 || n > 130 { // from half a second on, between
					t.Errorf("dialled %d times in a minute", n)
				}
				begun := time.Now()
				p.net.heal()
				again := p.net.node(t, "n2")
				r2 := replica(t, again, "n2", 1)
				p.r2.Close()
				answer(t, r2, success)
				for heartbeat(p.r1, address("n2"), 1) != nil {
					time.Sleep(10 * time.Millisecond)
				}
				if d := time.Since(begun); d > 6100*time.Millisecond { // a hello in vain and a wait
					t.Errorf("found after %v", d)
				}
			})
		})
	}
}

// hangUp accepts connections and closes them after the hello.
func hangUp(l *memListener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = transport.Welcome(c, cluster, "n2")
		c.Close()
	}
}

// sayNothing accepts connections and keeps them.
func sayNothing(l *memListener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
	}
}

// A peer that dials anew has given up the connection before, whether or not this end knows yet.
func TestTheNewestConnectionOfAPeerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		older, newer := p.knock(t, "n9"), p.knock(t, "n9")
		for _, c := range []net.Conn{older, newer} {
			if err := transport.SayHello(c, transport.ForRequests, cluster, "n9", "n2"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if !closedWithin(older, 0) {
			t.Error("the older one is still open")
		}
		if _, err := newer.Write(transport.Frame(transport.KindPing, 0, 0, 0, 0)); err != nil {
			t.Error(err)
		}
		if kind, _, _, err := transport.ReadFrame(newer); err != nil || kind != transport.KindPong {
			t.Errorf("the newer one: %d, %v", kind, err)
		}
	})
}

func TestALinkThatNobodyUsesClosesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r2, success)
		for range 2 {
			if err := heartbeat(p.r1, address("n2"), 1); err != nil {
				t.Error(err)
			}
			time.Sleep(10*time.Minute - 2*time.Second)
			if s := state(t, p.l1, "n2"); !s.Connected {
				t.Errorf("too early: %+v", s)
			}
			time.Sleep(4 * time.Second)
			if s := state(t, p.l1, "n2"); s.Connected {
				t.Errorf("still there: %+v", s)
			}
		}
		if n := p.net.dialled("n2"); n != 2 {
			t.Errorf("dialled %d times", n)
		}
	})
}

// Both nodes dial at once, and each keeps its own link: none has to give way.
func TestBothNodesDialAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r1, success)
		answer(t, p.r2, success)
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if err := heartbeat(p.r1, address("n2"), 1); err != nil {
					t.Error(err)
				}
			})
			calls.Go(func() {
				if err := heartbeat(p.r2, address("n1"), 1); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		time.Sleep(time.Minute + 500*time.Millisecond) // between two pings
		a, b := state(t, p.l1, "n2"), state(t, p.l2, "n1")
		if a.Connects != 1 || b.Connects != 1 || !a.Accepted || !b.Accepted || a.Sent == 0 || a.Sent != b.Received {
			t.Errorf("%+v\n%+v", a, b)
		}
	})
}

// Close ends callers, links, handshakes and dials, and returns when all goroutines have ended: the
// bubble would not end with one left.
func TestCloseDuringEverything(t *testing.T) {
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			p := link(t)
			slow := p.net.listen("n3") // takes no connection at all
			p.net.listen("n4")         // takes none either, but n1 is cut off from it
			half, err := p.net.dialFrom("n5")(context.Background(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			defer half.Close() // never says hello
			defer slow.Close()
			answer(t, p.r2, follow)
			stop := make(chan struct{})
			var calls sync.WaitGroup
			for i := range 20 {
				to := address([]string{"n2", "n3", "n4"}[i%3])
				calls.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						_ = heartbeat(p.r1, to, 1)
						_, _ = install(p.r1, to, 1<<20, &endless{})
						time.Sleep(time.Duration(i+1) * time.Millisecond)
					}
				})
			}
			time.Sleep(time.Duration(seed) * 3 * time.Millisecond)
			begun := time.Now()
			switch seed % 3 {
			case 0:
				p.l1.Close()
			case 1:
				p.r1.Close()
			case 2:
				p.net.cut("n1")
				p.l2.Close()
				p.l1.Close()
			}
			if d := time.Since(begun); d != 0 {
				t.Errorf("took %v", d)
			}
			close(stop)
			calls.Wait()
			if d := time.Since(begun); d > 20*time.Millisecond {
				t.Errorf("callers ended after %v", d)
			}
		})
	}
}
