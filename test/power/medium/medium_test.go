package medium_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/power/medium"
	"github.com/quorate/quorate/test/power/trace"
)

// script is what a program does below /r, a call a word: "mk d", "open f", "trunc f", "write f text", "at f offset
// text", "size f n", "sync f", "mv a b", "ln a b", "rm f". "begin" before a call leaves it in hand.
func script(t *testing.T, m *medium.Medium, lines ...string) {
	t.Helper()
	for _, line := range lines {
		line, begins := strings.CutPrefix(line, "begin ")
		c := call(strings.Fields(line))
		if err := m.Begin(c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !begins {
			m.End(c)
		}
	}
}

func call(w []string) *trace.Call {
	file := func(name string) trace.Arg { return trace.Arg{File: "/r/" + strings.TrimPrefix(name, ".")} }
	name := func(name string) []trace.Arg { return []trace.Arg{{File: "/"}, {Bytes: "/r/" + name}} }
	c := &trace.Call{Began: 1, Ended: 2}
	switch w[0] {
	case "mk":
		c.Name, c.Args = "mkdirat", name(w[1])
	case "open":
		c.Name, c.Args = "openat", append(name(w[1]), trace.Arg{Text: "O_CREAT"})
	case "trunc":
		c.Name, c.Args = "openat", append(name(w[1]), trace.Arg{Text: "O_CREAT|O_TRUNC"})
	case "write":
		c.Name, c.Args, c.Result = "write", []trace.Arg{file(w[1]), {Bytes: w[2]}}, int64(len(w[2]))
	case "at":
		c.Name, c.Args, c.Result = "pwrite64", []trace.Arg{file(w[1]), {Bytes: w[3]}, {}, {Text: w[2]}}, int64(len(w[3]))
	case "size":
		c.Name, c.Args = "ftruncate", []trace.Arg{file(w[1]), {Text: w[2]}}
	case "sync":
		c.Name, c.Args = "fsync", []trace.Arg{file(w[1])}
	case "mv":
		c.Name, c.Args = "renameat", append(name(w[1]), name(w[2])...)
	case "ln":
		c.Name, c.Args = "linkat", append(name(w[1]), name(w[2])...)
	case "rm":
		c.Name, c.Args = "unlinkat", name(w[1])
	}
	return c
}

// found are all disks that losses of power leave, each as its files and what they hold.
func found(t *testing.T, m *medium.Medium) map[string]int {
	t.Helper()
	all := map[string]int{}
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 0))
		folder := filepath.Join(t.TempDir(), "disk")
		if _, err := m.Cut(rng, medium.AnyLoss(rng), folder); err != nil {
			t.Fatal(err)
		}
		all[contents(t, folder)]++
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func contents(t *testing.T, folder string) string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, _ := filepath.Rel(folder, path)
		if d.IsDir() {
			list = append(list, name+"/")
			return nil
		}
		b, err := os.ReadFile(path)
		list = append(list, name+"="+brief(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

// brief names runs of a byte.
func brief(b []byte) string {
	var s strings.Builder
	for i := 0; i < len(b); {
		n := 1
		for i+n < len(b) && b[i+n] == b[i] {
			n++
		}
		if b[i] == 0 {
			fmt.Fprintf(&s, "0*%d", n)
		} else {
			fmt.Fprintf(&s, "%c*%d", b[i], n)
		}
		i += n
	}
	return s.String()
}

func page(letter string) string { return strings.Repeat(letter, 4096) }

func TestWhatIsSyncedIsThereWhateverIsLost(t *testing.T) {
	m := medium.New("/r")
	script(t, m, "mk d", "sync .", "open d/f", "write d/f "+page("a"), "sync d/f", "sync d")
	if all := found(t, m); len(all) != 1 || all["d/ d/f=a*4096"] == 0 {
		t.Error(all)
	}
	script(t, m, "mv d/f d/g", "sync d", "ln d/g d/h", "sync d", "rm d/g", "sync d")
	if all := found(t, m); len(all) != 1 || all["d/ d/h=a*4096"] == 0 {
		t.Error(all)
	}
}

// Each of these leaves exactly the disks that POSIX allows, torn pages aside, and each of them is found.
func TestWhatIsNotSyncedMayBeThereInPart(t *testing.T) {
	for name, tc := range map[string]struct {
		does []string
		want []string
	}{
		"a synced file in a folder that isn't": {
			[]string{"open f", "write f x", "sync f"}, []string{"", "f=x*1"},
		},
		"a name without its bytes": {
			[]string{"open f", "sync .", "write f xx"}, []string{"f=", "f=0*2", "f=x*2", "f=x*10*1"},
		},
		"a rename is whole": {
			[]string{"open f", "open g", "write f x", "write g y", "sync f", "sync g", "sync .", "mv f g"}, []string{"f=x*1 g=y*1", "g=x*1"},
		},
		"a rename without the name that it renames": {
			[]string{"open f", "mv f g"}, []string{"", "f=", "g="},
		},
		"a removal": {
			[]string{"open f", "sync .", "rm f"}, []string{"", "f="},
		},
		"a write that has begun when the sync does": {
			[]string{"open f", "sync .", "begin write f x", "sync f"}, []string{"f=", "f=0*1", "f=x*1"},
		},
		"a sync that hasn't returned": {
			[]string{"open f", "sync .", "write f x", "begin sync f"}, []string{"f=", "f=0*1", "f=x*1"},
		},
		"a file that is cut short": {
			[]string{"open f", "write f xx", "sync f", "sync .", "size f 1"}, []string{"f=x*1", "f=x*2", "f=x*10*1"},
		},
		"what a folder holds that isn't there": {
			[]string{"mk d", "open d/f", "sync d/f", "sync d"}, []string{"", "d/ d/f="},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := medium.New("/r")
			script(t, m, tc.does...)
			all := found(t, m)
			for _, want := range tc.want {
				if all[want] == 0 {
					t.Errorf("never found %q", want)
				}
				delete(all, want)
			}
			if len(all) > 0 {
				t.Errorf("also found: %v", all)
			}
		})
	}
}

func TestPagesAreWrittenEachForItselfAndMayBeTorn(t *testing.T) {
	m := medium.New("/r")
	script(t, m, "open f", "write f "+page("a")+page("b"), "sync f", "sync .", "at f 0 "+page("c"), "at f 4096 "+page("d"), "at f 4096 "+page("e"))
	kinds := map[string]int{}
	for is := range found(t, m) {
		for what, n := range map[string]bool{
			"nothing": is == "f=a*4096b*4096", "first": is == "f=c*4096b*4096", "second": is == "f=a*4096e*4096", "earlier": is == "f=a*4096d*4096",
			"all": is == "f=c*4096e*4096", "torn": strings.Count(is, "*") > 2,
		} {
			if n {
				kinds[what]++
			}
		}
	}
	if len(kinds) != 6 {
		t.Errorf("only found %v", kinds)
	}
}

func TestADiskThatLiesKeepsNothingForSure(t *testing.T) {
	m := medium.New("/r")
	m.Ignore = func(s medium.Sync) bool { return s.File == "f" && s.Pages[0] }
	script(t, m, "open f", "sync .", "write f x", "sync f")
	if all := found(t, m); all["f="] == 0 || all["f=x*1"] == 0 || m.Count.Ignored != 1 {
		t.Error(all, m.Count)
	}
}

func TestCallsThatAreNotFollowedAreRefused(t *testing.T) {
	for _, c := range []*trace.Call{
		{Name: "fallocate", Args: []trace.Arg{{File: "/r/f"}}, Ended: 1},
		{Name: "rename", Args: []trace.Arg{{Bytes: "/r/f"}, {Bytes: "/r/g"}}, Ended: 1},
		{Name: "renameat", Args: []trace.Arg{{File: "/"}, {Bytes: "/r/none"}, {File: "/"}, {Bytes: "/r/g"}}, Ended: 1},
	} {
		if err := medium.New("/r").Begin(c); err == nil {
			t.Errorf("%s is taken for nothing", c.Name)
		}
	}
	if err := medium.New("/r").Begin(&trace.Call{Name: "fallocate", Args: []trace.Arg{{File: "/elsewhere"}}, Ended: 1}); err != nil {
		t.Error(err)
	}
}
