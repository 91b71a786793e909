package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// scene is what three nodes say of themselves.
type scene map[string]description

func blankScene() scene {
	s := scene{}
	for i, name := range []string{"a", "b", "c"} {
		s[name] = description{
			name: name, id: fmt.Sprintf("%s-%016x", name, i+1), partitions: 3, replication: 3, memory: 1 << 30, nodes: []string{"a", "b", "c"},
		}
	}
	return s
}

func (s scene) genesis() *Genesis {
	var members []Member
	for _, d := range s {
		members = append(members, Member{ID: d.id})
	}
	g := newGenesis(members, 3, 3, 1<<30)
	return &g
}

func (s scene) change(name string, f func(*description)) {
	d := s[name]
	f(&d)
	s[name] = d
}

func (s scene) plan(self string) (step, error) {
	others := map[string]description{}
	for name, d := range s {
		if name != self {
			others[name] = d
		}
	}
	return planFounding(s[self], others)
}

func TestPlanFounding(t *testing.T) {
	holds := func(s scene, g *Genesis, names ...string) {
		for _, n := range names {
			s.change(n, func(d *description) { d.genesis = g })
		}
	}
	founded := func(s scene, names ...string) {
		for _, n := range names {
			s.change(n, func(d *description) { d.founded = true })
		}
	}
	for _, tc := range []struct {
		name string
		set  func(s scene, g *Genesis)
		self string
		want step
		why  error  // errors.Is
		says string // in the reason; empty: there is none
	}{
		{"all blank, the first name", func(scene, *Genesis) {}, "a", draw, nil, ""},
		{"all blank, another name", func(scene, *Genesis) {}, "b", wait, nil, "which a makes"},
		{"one is missing", func(s scene, _ *Genesis) { delete(s, "c") }, "a", wait, nil, "missing: c"},
		{"other nodes configured", func(s scene, _ *Genesis) { s.change("b", func(d *description) { d.nodes = []string{"a", "b"} }) }, "a", wait, nil, "a and b differ: initial nodes a, b, c and a, b"},
		{"other partitions configured", func(s scene, _ *Genesis) { s.change("b", func(d *description) { d.partitions = 1 }) }, "a", wait, nil, "3 and 1 partitions"},
		{"other replication configured", func(s scene, _ *Genesis) { s.change("c", func(d *description) { d.replication = 5 }) }, "a", wait, nil, "3 and 5 replicas"},
		{"other memory configured", func(s scene, _ *Genesis) { s.change("c", func(d *description) { d.memory = 1 }) }, "a", wait, nil, "bytes of memory"},

		{"one holds it", func(s scene, g *Genesis) { holds(s, g, "a") }, "a", pass, nil, ""},
		{"another holds it", func(s scene, g *Genesis) { holds(s, g, "a") }, "b", wait, nil, "which a holds"},
		{"two hold it, the first has lost its disk", func(s scene, g *Genesis) {
			holds(s, g, "b", "c")
			s.change("a", func(d *description) { d.id = "a-00000000000000ff" })
		}, "b", wait, ErrForeignDisk, "node a is a-00000000000000ff"},
		{"that node itself", func(s scene, g *Genesis) {
			holds(s, g, "b", "c")
			s.change("a", func(d *description) { d.id = "a-00000000000000ff" })
		}, "a", stayOut, ErrForeignDisk, "this is a-00000000000000ff"},
		{"two hold it, one is missing", func(s scene, g *Genesis) { holds(s, g, "a", "b"); delete(s, "c") }, "a", wait, nil, "missing: c"},
		{"all hold it", func(s scene, g *Genesis) { holds(s, g, "a", "b", "c") }, "b", begin, nil, ""},
		{"all hold it, the first has begun", func(s scene, g *Genesis) { holds(s, g, "a", "b", "c"); founded(s, "a") }, "b", begin, nil, ""},
		{"one has begun, another is away", func(s scene, g *Genesis) { holds(s, g, "a", "b", "c"); founded(s, "a"); delete(s, "c") }, "b", begin, nil, ""},
		{"others have begun, and this one holds nothing", func(s scene, g *Genesis) { holds(s, g, "a", "b"); founded(s, "a", "b") }, "c", stayOut, ErrBlank, "blank"},
		{"others have begun, with another disk of this name", func(s scene, g *Genesis) {
			holds(s, g, "a", "b")
			founded(s, "a", "b")
			s.change("c", func(d *description) { d.id = "c-00000000000000ff" })
		}, "c", stayOut, ErrForeignDisk, ""},
		{"two documents", func(s scene, g *Genesis) { holds(s, g, "a"); holds(s, s.genesis(), "b") }, "c", stayOut, ErrGenesisDiffers, "of a and of b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := blankScene()
			tc.set(s, s.genesis())
			got, why := s.plan(tc.self)
			if got != tc.want || tc.why != nil && !errors.Is(why, tc.why) || tc.says == "" && tc.why == nil && why != nil {
				t.Errorf("step %d because %v; want %d", got, why, tc.want)
			}
			if why != nil && !strings.Contains(why.Error(), tc.says) {
				t.Errorf("says %q, want %q in it", why, tc.says)
			}
		})
	}
}

// Whatever nodes see of each other, and whichever disks are lost on the way, no two of them ever begin with two
// documents, and none begins whose disk isn't the one that its document names.
func TestNoTwoGenesesEverBegin(t *testing.T) {
	names := []string{"a", "b", "c"}
	random := newRandom(t)
	for range 2000 {
		s := blankScene()
		begun := map[string]*Genesis{}
		for move := range 60 {
			name := names[random.IntN(3)]
			if random.IntN(20) == 0 { // the disk is lost
				s.change(name, func(d *description) {
					d.genesis, d.founded, d.id = nil, false, fmt.Sprintf("%s-%016x", name, 100+move)
				})
				continue
			}
			seen := map[string]description{}
			for _, other := range names {
				if other != name && random.IntN(4) > 0 {
					seen[other] = s[other]
				}
			}
			if s[name].founded {
				continue
			}
			switch next, why := planFounding(s[name], seen); {
			case why != nil:
			case next == draw:
				s.change(name, func(d *description) { d.genesis = s.genesis() })
			case next == pass:
				for other := range seen {
					if d := s[other]; d.genesis == nil && s[name].genesis.names(d.id) {
						s.change(other, func(d *description) { d.genesis = s[name].genesis })
					}
				}
			case next == begin:
				d := s[name]
				if !d.genesis.names(d.id) {
					t.Fatalf("%s begins as %s under a document of %+v", name, d.id, d.genesis.Nodes)
				}
				begun[name] = d.genesis
				for other, g := range begun {
					if !g.equal(*d.genesis) && s[other].founded {
						t.Fatalf("%s and %s begin with two documents", name, other)
					}
				}
				s.change(name, func(d *description) { d.founded = true })
			}
		}
	}
}
