package faults_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/test/rig"
)

// ofDisks are what befalls disks.
func ofDisks() []fault {
	here := ground{steered: true} // snapshots come soon there
	return []fault{
		{name: "full disk", about: failedWrites, does: fillDisk, on: ground{mounted: true}, lacks: lacksMounts,
			never: map[phase]string{installing: "the disks are too small for logs and snapshots of that size beside what fills them"}},
		{name: "failing disk", about: failedWrites, does: failDisk, lacks: lacksStrace},
		{name: "hanging disk", about: "disks that hung", does: hangDisk, lacks: lacksStrace},
		{name: "damaged log", about: "damaged entries", does: damageLog, lasting: true},
		{name: "damaged snapshot", about: "damaged snapshots", does: damageSnapshot, on: here, lasting: true},
		{name: "blank disk", about: "disks lost", does: blankDisk, lasting: true},
	}
}

func lacksMounts() string { return lacksProgram("mkfs.ext4", "e2fsprogs", true) }

func lacksStrace() string { return lacksProgram("strace", "strace", true) }

// diskSize is that of each node's file system.
const diskSize = 96 << 20

// mountDisks gives each node a file system of its own. They are unmounted with the test.
func mountDisks(t *testing.T, n *rig.Nodes) {
	t.Helper()
	for _, name := range rig.Names() {
		image, at := filepath.Join(n.Dir, name+".img"), n.Disk(name)
		rig.Write(t, image, "")
		if err := errors.Join(os.Truncate(image, diskSize), os.MkdirAll(at, 0o700)); err != nil {
			t.Fatal(err)
		}
		command(t, "mkfs.ext4", "-q", "-m", "0", image)
		command(t, "mount", "-o", "loop", image, at)
		t.Cleanup(func() { command(t, "umount", at) })
	}
}

func command(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// fillDisk fills the disk of one that leads until it ends for that, and makes room again.
func fillDisk(c *cell) {
	victim, leads := c.someLeader()
	ballast := filepath.Join(c.Disk(victim), "ballast")
	c.fill(ballast)
	c.hit("disk of "+victim+" full", leads...)
	c.ends(victim, "no space left on device")
	c.recover(leads)
	// As long as it is full the node doesn't start, and takes nothing for lost.
	c.Begin(c.owner, victim)
	c.ends(victim, "no space left on device")
	if err := os.Remove(ballast); err != nil {
		c.Fatal(err)
	}
	c.resume(c, victim)
}

// fill writes until nothing goes any more.
func (c *cell) fill(path string) {
	c.Helper()
	f, err := os.Create(path)
	if err != nil {
		c.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 1<<10; size /= 4 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, os.ErrInvalid) && !strings.Contains(err.Error(), "no space left") {
		c.Fatal(err)
	}
}

// ends waits until a node has ended because of a write that failed, and says why.
func (c *cell) ends(name, why string) {
	c.Helper()
	rig.Eventually(c, name+" to end", func() bool { return !c.Running(name) })
	if said := c.Process[name].Stderr.End(); !strings.Contains(said, why) {
		c.Errorf("%s has ended and doesn't say %q:\n%s", name, why, said)
		return
	}
	c.count(failedWrites, 1)
}

// inject has the kernel do harm to a node's calls, as strace does it, and returns strace and what it writes.
func (c *cell) inject(name, harm string) (*rig.Process, string) {
	c.Helper()
	log := filepath.Join(c.TempDir(), "strace")
	p := rig.Start(c, "strace", "-f", "-qq", "-o", log, "-p", fmt.Sprint(c.Process[name].PID()), "-e", "trace=fdatasync", "-e", "inject=fdatasync:"+harm)
	return p, log
}

// failDisk makes the next sync of one that leads fail: it ends, although the one after that would succeed.
func failDisk(c *cell) {
	victim, leads := c.someLeader()
	_, log := c.inject(victim, "error=EIO:when=1")
	rig.Eventually(c, "a sync to fail", func() bool { return bytes.Contains(contents(log), []byte("INJECTED")) })
	c.hit("a sync of "+victim+" failed", leads...)
	c.ends(victim, "input/output error")
	c.recover(leads)
	c.resume(c, victim)
}

// hangDisk makes a sync of one that leads hang for longer than a disk may take.
func hangDisk(c *cell) {
	victim, leads := c.someLeader()
	strace, log := c.inject(victim, "delay_enter=90000000:when=1")
	rig.Eventually(c, "a sync to hang", func() bool { return bytes.Contains(contents(log), []byte("fdatasync(")) })
	c.hit("a sync of "+victim+" hangs", leads...)
	rig.Eventually(c, victim+" to give up", func() bool { return strings.Contains(c.Process[victim].Stderr.String(), "disk is stuck") })
	c.count("disks that hung", 1)
	c.recover(leads)
	strace.Kill(c) // until then nothing of the process can go
	rig.Eventually(c, victim+" to end", func() bool { return !c.Running(victim) })
	c.resume(c, victim)
}

func contents(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // not there yet
	}
	return text
}

// staysOut waits until a node says that it won't take part any more, and sees the others go on.
func (c *cell) staysOut(name string) {
	c.Helper()
	c.Process[name].Line(c, "awaiting replacement")
	c.awaitAllows(200)
}

// damageLog changes a byte of an entry in the log of one that leads, while it is stopped.
func damageLog(c *cell) {
	victim, leads := c.someLeader()
	c.Kill(c, victim)
	c.hit("killed "+victim, leads...)
	c.recover(leads)
	c.count("damaged entries", c.damageEntry(filepath.Join(c.Data(victim), fmt.Sprintf("p%d", leads[0]), "raft.db")))
	c.Begin(c.owner, victim)
	c.staysOut(victim)
}

// damageEntry flips a bit in the newest entry but some, and returns how many it has damaged.
func (c *cell) damageEntry(path string) (damaged int) {
	c.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		logs := tx.Bucket([]byte("logs"))
		at := logs.Cursor()
		key, value := at.Last()
		for range 5 {
			key, value = at.Prev()
		}
		if key == nil {
			return errors.New("the log is too short")
		}
		changed := bytes.Clone(value)
		changed[len(changed)*3/4] ^= 1
		damaged++
		return logs.Put(bytes.Clone(key), changed)
	})
	if err != nil {
		c.Fatal(err)
	}
	return damaged
}

// damageSnapshot changes a byte of every snapshot of one that leads, while it is stopped.
func damageSnapshot(c *cell) {
	if c.plan.phase != installing {
		c.fillLogs()
	}
	victim, leads := c.someLeader()
	c.Kill(c, victim)
	c.hit("killed "+victim, leads...)
	if c.plan.phase != installing {
		c.recover(leads)
	}
	list, _ := filepath.Glob(filepath.Join(c.Data(victim), "p*", "snapshots", "*", "state.bin"))
	for _, path := range list {
		text := contents(path)
		text[len(text)/2] ^= 1
		if err := os.WriteFile(path, text, 0o600); err != nil {
			c.Fatal(err)
		}
		c.count("damaged snapshots", 1)
	}
	c.Begin(c.owner, victim)
	c.staysOut(victim)
}

// blankDisk takes the disk of one that leads away.
func blankDisk(c *cell) {
	victim, leads := c.someLeader()
	c.Kill(c, victim)
	c.hit("killed "+victim, leads...)
	if err := os.RemoveAll(c.Data(victim)); err != nil {
		c.Fatal(err)
	}
	c.count("disks lost", 1)
	c.Begin(c.owner, victim)
	c.staysOut(victim)
}
