package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/replay"
)

// trace is a random log, each row with its time and user.
func trace(seed uint64, rows int, ordered bool) (log string, lines [][2]int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := bytes.NewBufferString("time,user\n")
	now := 0
	for range rows {
		now += rng.IntN(2)
		at := now
		if !ordered {
			at = max(0, now-rng.IntN(30))
		}
		user := rng.IntN(20)
		lines = append(lines, [2]int{at, user})
		fmt.Fprintf(b, "%d,user-%d-%s\n", at, user, strings.Repeat("x", 100))
	}
	return b.String(), lines
}

// oracle decides a trace the slow and obvious way.
func oracle(lines [][2]int, amount, window int) string {
	order := make([]int, len(lines))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return lines[a][0] - lines[b][0] })
	events := map[int][]int{}
	var words []string
	for _, i := range order {
		at, user := lines[i][0], lines[i][1]
		n := 0
		for _, e := range events[user] {
			if e > at-window {
				n++
			}
		}
		if n < amount {
			events[user] = append(events[user], at)
			words = append(words, strconv.Itoa(i+2)+"+")
		} else {
			words = append(words, strconv.Itoa(i+2)+"-")
		}
	}
	return strings.Join(words, " ")
}

// However rows come and however little memory there is, decisions are the oracle's.
func TestRowsAreDecidedInTheOrderOfTheirTimes(t *testing.T) {
	for seed := range uint64(4) {
		for _, ordered := range []bool{true, false} {
			log, lines := trace(seed, 30_000, ordered)
			want := oracle(lines, 3, 60)
			for _, memory := range []int64{64 << 20, 1 << 20} {
				for _, source := range []replay.Source{text("log", log), pipe("-", log)} {
					o := run(t, replay.Config{Set: set(rolling(3, 60*second, "user")), Memory: memory}, source)
					if got := o.words(); got != want {
						t.Fatalf("seed %d, ordered %v, %d bytes, again %v: decisions differ", seed, ordered, memory, source.Again)
					}
					if streamed := ordered && memory == 1<<20 && source.Again; streamed != (o.sorted == 0) || o.read < 29_000 {
						t.Errorf("ordered %v, %d bytes, again %v: heard of %d lines read and %d rows decided", ordered, memory, source.Again, o.read, o.sorted)
					}
				}
			}
		}
	}
}

// Several inputs are one stream, and lines keep their numbers in each.
func TestSeveralInputsAreMergedByTime(t *testing.T) {
	o := run(t, replay.Config{Set: set(rolling(1, 60*second, "user"))},
		text("a", "time,user\n5,u\n70,u\n"), text("b", "time,user\n0,u\n61,u\n"))
	var got []string
	for _, d := range o.decisions {
		got = append(got, fmt.Sprintf("%d:%d %v", d.Input, d.Line, d.Allowed))
	}
	if want := []string{"1:2 true", "0:2 false", "1:3 true", "0:3 false"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Each fault is told once, though rows may be read twice.
func TestFaultsAreToldOnce(t *testing.T) {
	log, lines := trace(1, 30_000, false)
	cut := strings.Index(log[len(log)/2:], "\n") + len(log)/2 + 1
	log = log[:100_000] + "\nnot a time,u\n" + log[100_000:cut] + "neither,u\n" + log[cut:]
	o := run(t, replay.Config{Set: set(rolling(3, 60*second, "user")), Memory: 1 << 20}, text("log", log))
	if len(o.faults) < 2 || int64(len(o.faults)) != o.Bad || o.Requests < int64(len(lines))-2 {
		t.Errorf("%d faults told, %d bad, %d requests of %d", len(o.faults), o.Bad, o.Requests, len(lines))
	}
	for i := range o.faults[1:] {
		if o.faults[i].Line >= o.faults[i+1].Line {
			t.Errorf("line %d comes after line %d", o.faults[i+1].Line, o.faults[i].Line)
		}
	}
}

// What was read before an error is replayed, and the error is told.
func TestAnInputThatBreaksOffIsReplayedUpToThere(t *testing.T) {
	broken := errors.New("the disk is gone")
	source := replay.Source{Name: "log", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("time,user\n0,u\n1,u\n"), errorReader{broken})), nil
	}}
	o := run(t, replay.Config{Set: set(rolling(1, 60*second, "user"))}, source, text("never", "time,user\n0,v\n"))
	var input *replay.InputError
	if !errors.Is(o.failed, broken) || !errors.As(o.failed, &input) || input.Name != "log" || o.Requests != 2 {
		t.Errorf("%v after %d requests", o.failed, o.Requests)
	}
}

type errorReader struct{ err error }

// The first row that doesn't fit in memory may be the first that is out of order. Which row that is shows by
// the log being opened twice.
func TestTheRowThatDoesNotFitMayBeOutOfOrder(t *testing.T) {
	replayed := func(times []int) (s *replay.Summary, opened int) {
		var log strings.Builder
		log.WriteString("time,user\n")
		for _, at := range times {
			fmt.Fprintf(&log, "%d,u\n", at)
		}
		source := text("log", log.String())
		open := source.Open
		source.Open = func() (io.ReadCloser, error) { opened++; return open() }
		s, err := replay.Run(t.Context(), replay.Config{
			Set: set(rolling(3, 60*second, "user")), Domain: "d", Memory: 1 << 20, TempDir: t.TempDir(), Prefix: 128,
		}, []replay.Source{source})
		if err != nil {
			t.Fatal(err)
		}
		return s, opened
	}
	var ordered []int
	for i := range 60_000 {
		ordered = append(ordered, 1_000_000+i)
	}
	fits := sort.Search(len(ordered), func(n int) bool { _, opened := replayed(ordered[:n+1]); return opened > 1 })
	if fits == 0 || fits == len(ordered) {
		t.Fatalf("%d rows fit", fits)
	}
	for at := fits - 2; at <= fits+2; at++ {
		times := slices.Clone(ordered[:fits+100])
		for i := at; i < len(times); i++ {
			times[i] = i - at
		}
		if s, _ := replayed(times); s.From != 0 || s.To != int64(times[at-1])*second {
			t.Errorf("out of order from row %d of %d that fit: from %d to %d", at, fits, s.From, s.To)
		}
	}
}

// A log that changes between two readings is an error, never a shorter report.
func TestAnInputThatChangesWhileItIsReadIsToldOf(t *testing.T) {
	log, _ := trace(1, 30_000, true)
	for name, later := range map[string]string{"shorter": log[:len(log)/2], "longer": log + "99999,x\n", "a late row": log + "0,x\n"} {
		opened := 0
		source := replay.Source{Name: "log", Again: true, Open: func() (io.ReadCloser, error) {
			if opened++; opened == 1 {
				return io.NopCloser(strings.NewReader(log)), nil
			}
			return io.NopCloser(strings.NewReader(later)), nil
		}}
		s, err := replay.Run(t.Context(), replay.Config{
			Set: set(rolling(3, 60*second, "user")), Domain: "d", Memory: 1 << 20, TempDir: t.TempDir(), Prefix: 128,
		}, []replay.Source{source})
		if !errors.Is(err, replay.ErrChanged) || s != nil || opened != 2 {
			t.Errorf("%s: %v after %d readings", name, err, opened)
		}
	}
}
