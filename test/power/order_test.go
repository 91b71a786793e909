package power_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/test/power/trace"
)

// proof is what a trace shows of one check: its way from the socket that asked, through the disks of a majority, back
// to it.
type proof struct {
	asked    *trace.Call   // a read
	durable  []*trace.Call // the sync after which the check's entry is on a disk, one for each node that had it in time
	answered *trace.Call   // a write of the same node
}

// took is from the question to the answer.
func (p proof) took() time.Duration {
	return time.Duration(p.answered.BeganAt - p.asked.EndedAt).Round(10 * time.Microsecond)
}

// majority of three.
const majority = 2

// prove looks for the check of an id in the calls of all nodes, which answer at these addresses. It errs unless in
// time order: the node that answers has read the check; in two processes, a write has put its entry in the log file, a
// sync of that file has returned, a write has put a meta page in its place by which the entry is found, and another
// sync has returned; and only then has it begun to write the answer.
func prove(calls []*trace.Call, nodes []string, id string) (p proof, err error) {
	for _, c := range calls { // the last answer counts: an earlier one was of a node that didn't lead
		if slices.Contains(sends, c.Name) && says(c, nodes, id) {
			p.answered = c
		}
	}
	for _, c := range calls {
		if p.asked == nil && p.answered != nil && c.Name == "read" && c.Done() && says(c, []string{local(p.answered)}, id) {
			p.asked = c
		}
	}
	if p.asked == nil || p.answered.Began <= p.asked.Ended {
		return p, errors.New("it isn't seen to be asked, and then answered")
	}
	for _, file := range logFiles(calls) {
		if c := durable(calls, file, id, p.asked.Ended); c != nil && c.Ended < p.answered.Began {
			p.durable = append(p.durable, c)
		}
	}
	if len(p.durable) < majority {
		return p, fmt.Errorf("it was on the disks of %d when it was answered", len(p.durable))
	}
	return p, nil
}

// says tells whether a call carries an id over a socket of one of these addresses.
func says(c *trace.Call, nodes []string, id string) bool {
	return len(c.Args) > 1 && slices.Contains(nodes, local(c)) && strings.Contains(c.Args[1].Bytes, id)
}

// local is the address on this side of a call's socket; empty if it has none.
func local(c *trace.Call) string {
	sides, ok := strings.CutPrefix(c.FirstFile(), "TCP:[")
	if !ok {
		return ""
	}
	here, _, _ := strings.Cut(sides, "->")
	return here
}

var sends = []string{"write", "writev", "sendto", "sendmsg"}

func logFiles(calls []*trace.Call) (files []string) {
	for _, c := range calls {
		if file := c.FirstFile(); filepath.Base(file) == "raft.db" && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

// durable returns the sync of a log file after which an entry that holds the id is on the disk, however much of what
// isn't synced is lost; nil if there is none.
func durable(calls []*trace.Call, file, id string, after int) *trace.Call {
	of := slices.Clone(calls)
	of = slices.DeleteFunc(of, func(c *trace.Call) bool { return c.FirstFile() != file || c.Began < after })
	next := func(after *trace.Call, is func(*trace.Call) bool) *trace.Call {
		for _, c := range of {
			if c.Done() && (after == nil || c.Began >= after.Ended && c != after) && is(c) {
				return c
			}
		}
		return nil
	}
	sync := func(c *trace.Call) bool { return c.Name == "fdatasync" || c.Name == "fsync" }
	entry := next(nil, func(c *trace.Call) bool { return c.Name == "pwrite64" && strings.Contains(c.Args[1].Bytes, id) })
	if entry == nil {
		return nil
	}
	data := next(entry, sync)
	if data == nil {
		return nil
	}
	meta := next(data, onMetaPage)
	if meta == nil {
		return nil
	}
	return next(meta, sync)
}

// onMetaPage tells whether a call writes one of the two pages by which bbolt finds all others.
func onMetaPage(c *trace.Call) bool {
	if c.Name != "pwrite64" {
		return false
	}
	offset, err := strconv.ParseInt(c.Args[3].Text, 10, 64)
	return err == nil && offset < 2*4096
}
