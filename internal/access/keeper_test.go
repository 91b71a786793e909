package access_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/access"
)

// told is one thing that a watched keeper told.
type told struct {
	changed bool
	err     error
}

// poll has Watch look at the files twice and returns what it told: the second look has nothing to add.
func poll(t *testing.T, k *access.Keeper) (heard []told) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ticks, done := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(done)
		k.Watch(ctx, ticks, func(changed bool, err error) { heard = append(heard, told{changed, err}) })
	}()
	ticks <- today
	ticks <- today
	cancel()
	<-done
	return heard
}

func openIn(t *testing.T, dir string, ca *authority, h holder, now func() time.Time, expect ...func(access.Identity) error) *access.Keeper {
	t.Helper()
	k, err := access.Open(store(t, dir, ca.pem, h), now, expect...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRotationIsTakenWithoutRestart: configurations that were handed out before go by the new files.
func TestRotationIsTakenWithoutRestart(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	uris, dir := []string{"quorate://peer/n1"}, t.TempDir()
	n1 := openIn(t, dir, old, old.issue(t, uris), atToday)
	server, client := n1.ServerTLS(), n1.ClientTLS(nil)
	before, after := old.keeper(t, "quorate://peer/n2"), next.keeper(t, "quorate://peer/n2")
	meet(t, server, before.ClientTLS(nil)).mustSucceed(t)
	meet(t, before.ServerTLS(), client).mustSucceed(t)
	if heard := poll(t, n1); len(heard) != 0 {
		t.Errorf("without a change: %v", heard)
	}

	store(t, dir, next.pem, next.issue(t, uris, ends(today.Add(2*day))))
	if heard := poll(t, n1); len(heard) != 1 || heard[0] != (told{changed: true}) {
		t.Errorf("told %v", heard)
	}
	meet(t, server, after.ClientTLS(access.IsNode("n1"))).mustSucceed(t)
	meet(t, after.ServerTLS(), client).mustSucceed(t)
	m := meet(t, server, before.ClientTLS(func(access.Identity) error { return nil }))
	m.mustBeRefused(t, m.client, "unknown authority")
	if !n1.NotAfter().Equal(today.Add(2 * day)) {
		t.Errorf("ends at %v", n1.NotAfter())
	}
}

// TestACARotatesByABundle: with the old and the new CA in one file both are trusted, whoever signed one's own.
func TestACARotatesByABundle(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	h := old.issue(t, []string{"quorate://peer/n1"})
	n1, err := access.Open(store(t, t.TempDir(), "# from\n"+old.pem+"# to\n"+next.pem, h), atToday)
	if err != nil {
		t.Fatal(err)
	}
	for _, ca := range []*authority{old, next} {
		meet(t, n1.ServerTLS(), bare(t, ca.issue(t, []string{"quorate://peer/n2"}))).mustSucceed(t)
	}
}

// TestABadNewFileNeverReplacesAGoodOne: it is told of once, and tried again until it is good.
func TestABadNewFileNeverReplacesAGoodOne(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	uris, dir := []string{"quorate://peer/n1"}, t.TempDir()
	first := ca.issue(t, uris)
	n1 := openIn(t, dir, ca, first, atToday, access.IsNode("n1"))
	server, caller := n1.ServerTLS(), ca.keeper(t, "quorate://gateway/g?domains=*")
	end, second := n1.NotAfter(), ca.issue(t, uris)
	for _, bad := range []struct {
		what, ca string
		h        holder
	}{
		{"half a key", ca.pem, holder{first.cert, first.key[:len(first.key)/2]}},
		{"a new key, the certificate to come", ca.pem, holder{first.cert, second.key}},
		{"nothing", "", holder{}},
		{"expired", ca.pem, ca.issue(t, uris, ends(today.Add(-time.Second)))},
		{"another CA", other.pem, first},
		{"without a role", ca.pem, ca.issue(t, nil)},
		{"another node's", ca.pem, ca.issue(t, []string{"quorate://peer/n2"})},
	} {
		store(t, dir, bad.ca, bad.h)
		heard := poll(t, n1)
		if len(heard) != 1 || heard[0].changed || heard[0].err == nil || n1.Problem() == nil || n1.Problem().Error() != heard[0].err.Error() {
			t.Errorf("%s: told %v, problem %v", bad.what, heard, n1.Problem())
		}
		if changed, err := n1.Reload(); changed || err == nil {
			t.Errorf("%s: Reload: %v, %v", bad.what, changed, err)
		}
		meet(t, server, caller.ClientTLS(access.IsNode("n1"))).mustSucceed(t)
		if !n1.NotAfter().Equal(end) || n1.Identity().String() != uris[0] {
			t.Errorf("%s: in force: %s until %v", bad.what, n1.Identity(), n1.NotAfter())
		}
	}
	store(t, dir, ca.pem, second)
	if heard := poll(t, n1); len(heard) != 1 || heard[0] != (told{changed: true}) || n1.Problem() != nil {
		t.Errorf("a good one: told %v, problem %v", heard, n1.Problem())
	}
}

func TestAnotherNodesCertificateIsNotTaken(t *testing.T) {
	ca := newAuthority(t)
	f := store(t, t.TempDir(), ca.pem, ca.issue(t, []string{"quorate://peer/n2"}))
	if _, err := access.Open(f, atToday, access.IsNode("n1")); !errors.Is(err, access.ErrRefused) || !strings.Contains(err.Error(), f.Cert) {
		t.Errorf("n2's certificate for n1: %v", err)
	}
}

// TestTheEndOfTheCertificateInForceIsTold, though no file changed.
func TestTheEndOfTheCertificateInForceIsTold(t *testing.T) {
	ca := newAuthority(t)
	var clock wallClock
	n1 := openIn(t, t.TempDir(), ca, ca.issue(t, []string{"quorate://peer/n1"}), clock.now)
	clock.advance(2 * day)
	heard := poll(t, n1)
	if len(heard) != 1 || heard[0].err == nil || !strings.Contains(heard[0].err.Error(), "expired") || n1.Problem() == nil {
		t.Errorf("told %v, problem %v", heard, n1.Problem())
	}
}

// TestASwappedSymlinkIsReadWhole: whichever read the swap comes after, what is in force is all old or all new.
func TestASwappedSymlinkIsReadWhole(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	for swapAfter := range 8 {
		// As Kubernetes lays out a volume: files link into ..data, and ..data links to a folder.
		dir := t.TempDir()
		for name, ca := range map[string]*authority{"..old": old, "..new": next} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			store(t, filepath.Join(dir, name), ca.pem, ca.issue(t, []string{"quorate://gateway/" + name[2:] + "?domains=*"}))
		}
		link(t, "..old", filepath.Join(dir, "..data"))
		f := access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
		for _, path := range []string{f.CA, f.Cert, f.Key} {
			link(t, filepath.Join("..data", filepath.Base(path)), path)
		}
		reads := 0
		k, err := access.OpenReading(f, atToday, func(path string) ([]byte, error) {
			if reads == swapAfter {
				link(t, "..new", filepath.Join(dir, "..tmp"))
				if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
					t.Error(err)
				}
			}
			reads++
			return os.ReadFile(path)
		})
		if err != nil {
			t.Errorf("a swap before read %d: %v", swapAfter, err)
			continue
		}
		name, ca := "new", next
		if reads <= swapAfter {
			name, ca = "old", old
		}
		if got := k.Identity().String(); got != "quorate://gateway/"+name+"?domains=*" {
			t.Errorf("a swap before read %d: %s, want the %s one", swapAfter, got, name)
		}
		meet(t, ca.keeper(t, "quorate://peer/n1").ServerTLS(), k.ClientTLS(nil)).mustSucceed(t)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatNeverRestAreRefused(t *testing.T) {
	ca := newAuthority(t)
	f := store(t, t.TempDir(), ca.pem, ca.issue(t, []string{"quorate://reader/r"}))
	reads := 0
	_, err := access.OpenReading(f, atToday, func(path string) ([]byte, error) {
		reads++
		text, err := os.ReadFile(path)
		return append(text, strings.Repeat("\n", reads)...), err
	})
	if err == nil || !strings.Contains(err.Error(), "keep changing") || reads > 100 {
		t.Errorf("%d reads, %v", reads, err)
	}
}

func TestAKeyThatOthersMayReadIsAWarning(t *testing.T) {
	ca := newAuthority(t)
	f := store(t, t.TempDir(), ca.pem, ca.issue(t, []string{"quorate://reader/r"}))
	for mode, exposed := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		if err := os.Chmod(f.Key, mode); err != nil {
			t.Fatal(err)
		}
		k, err := access.Open(f, atToday)
		if err != nil {
			t.Fatal(err)
		}
		if w := k.Warning(); errors.Is(w, access.ErrKeyExposed) != exposed || exposed && !strings.Contains(w.Error(), f.Key) {
			t.Errorf("%04o: %v", mode, w)
		}
	}
}

// TestConnectionsBeginWhileFilesChange: each end has, at any moment, a certificate and CAs that go together.
func TestConnectionsBeginWhileFilesChange(t *testing.T) {
	ca := newAuthority(t)
	uris, dir := []string{"quorate://peer/n1"}, t.TempDir()
	n1 := openIn(t, dir, ca, ca.issue(t, uris), atToday)
	caller := ca.keeper(t, "quorate://reader/r")
	server := n1.ServerTLS()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			store(t, dir, ca.pem, ca.issue(t, uris))
			if changed, err := n1.Reload(); !changed || err != nil || n1.Problem() != nil {
				t.Error(changed, err)
			}
		}
	})
	for range 20 {
		meet(t, server, caller.ClientTLS(access.IsNode("n1"))).mustSucceed(t)
	}
	wg.Wait()
}

// TestACertificateInMemoryIsKeptAsOneInFiles: what its source gives at a reload is in force from then on, if it fits,
// and no file that happens to have its name is looked at.
func TestACertificateInMemoryIsKeptAsOneInFiles(t *testing.T) {
	ca, uris := newAuthority(t), []string{"quorate://policy-writer/operator"}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("tls.key", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var held access.Contents
	hold := func(h holder) { held = access.Contents{CA: ca.pem, Cert: h.cert, Key: h.key} }
	source := func() (access.Contents, error) { return held, nil }
	if _, err := access.OpenFrom(source, atToday); err == nil || !strings.Contains(err.Error(), "ca.crt: holds no certificate") {
		t.Errorf("nothing: %v", err)
	}
	hold(ca.issue(t, uris))
	k, err := access.OpenFrom(source, atToday)
	if err != nil || k.Warning() != nil {
		t.Fatal(err, k.Warning())
	}
	server, client := ca.keeper(t, "quorate://peer/n1").ServerTLS(), k.ClientTLS(nil)
	first := meet(t, server, client)
	hold(ca.issue(t, uris))
	if changed, err := k.Reload(); !changed || err != nil {
		t.Error(changed, err)
	}
	second := meet(t, server, client)
	hold(holder{})
	if changed, err := k.Reload(); changed || err == nil || k.Problem() == nil {
		t.Error(changed, err)
	}
	third := meet(t, server, client)
	for _, m := range []meeting{first, second, third} {
		m.mustSucceed(t)
	}
	serial := func(m meeting) string { return m.serverState.PeerCertificates[0].SerialNumber.String() }
	if serial(first) == serial(second) || serial(second) != serial(third) {
		t.Errorf("shown: %s, %s, %s", serial(first), serial(second), serial(third))
	}
}
