package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// PollEvery is how often the ticks of [Keeper.Watch] should come: three small files are read at each, and a
// certificate is renewed days before its end.
const PollEvery = 5 * time.Second

// ErrKeyExposed says that others than the owner of a private key's file and its group may read it. It is a
// warning: in a container there are often no others, and volumes are mounted so by default.
var ErrKeyExposed = errors.New("private key can be read by everybody on this machine")

// Keeper holds one process's certificate, key and CAs, and follows their files, or whatever else they come
// from. It is safe for concurrent use.
type Keeper struct {
	files  Files // as messages name them
	onDisk bool  // and they are files
	now    func() time.Time
	expect []func(Identity) error
	read   func() (Contents, error)

	reloading sync.Mutex // one reload at a time, so that an older reading never replaces a newer one
	state     atomic.Pointer[state]
}

// state is what is in force, and what is wrong with what should be.
type state struct {
	*material
	problem error
}

// Open reads the files. Its error says which of them doesn't fit and what to do; then there is no keeper,
// since nothing is in force yet that could stay. Now is the wall clock, time.Now outside of tests.
//
// Each expect refuses a certificate of one's own that is another's, now and at every reload: a node expects
// [IsNode] of its name, so that files mixed up never let it speak as another one.
func Open(files Files, now func() time.Time, expect ...func(Identity) error) (*Keeper, error) {
	return open(files, now, readFile, expect...)
}

func open(files Files, now func() time.Time, read func(string) ([]byte, error), expect ...func(Identity) error) (*Keeper, error) {
	k := &Keeper{files: files, onDisk: true, now: now, expect: expect}
	k.read = func() (Contents, error) { return files.readWhole(read) }
	return k.begin()
}

// OpenFrom is Open for a certificate that is in no file: read returns what its files would hold, at once and
// each time anew. Messages name its parts ca.crt, tls.crt and tls.key.
func OpenFrom(read func() (Contents, error), now func() time.Time, expect ...func(Identity) error) (*Keeper, error) {
	k := &Keeper{files: Files{CA: "ca.crt", Cert: "tls.crt", Key: "tls.key"}, now: now, expect: expect, read: read}
	return k.begin()
}

func (k *Keeper) begin() (*Keeper, error) {
	m, err := k.load()
	if err != nil {
		return nil, err
	}
	k.state.Store(&state{material: m})
	return k, nil
}

// Watch reloads at every tick until ctx is done; the caller joins it. It tells when other files came into
// force, and why new ones were refused or those in force have become unfit: once for each reason, not at
// every tick, though each tick tries again. See [PollEvery].
func (k *Keeper) Watch(ctx context.Context, ticks <-chan time.Time, tell func(changed bool, err error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			if changed, news, err := k.reload(); changed || news {
				tell(changed, err)
			}
		}
	}
}

// Reload reads the files now. What fits is in force for every connection that begins from then on, and
// changed says whether it is anything new; what doesn't fit leaves everything as it was, and err says why.
// Content is compared, not times and sizes: those can stay the same.
func (k *Keeper) Reload() (changed bool, err error) {
	changed, _, err = k.reload()
	return changed, err
}

// reload also says whether its error is another than that of the last reload.
func (k *Keeper) reload() (changed, news bool, err error) {
	k.reloading.Lock()
	defer k.reloading.Unlock()
	was := k.state.Load()
	// The same files are checked too: they may have expired meanwhile.
	m, err := k.load()
	if err != nil {
		k.state.Store(&state{material: was.material, problem: err})
		return false, was.problem == nil || was.problem.Error() != err.Error(), err
	}
	changed = m.contents != was.contents
	k.state.Store(&state{material: m})
	return changed, false, nil
}

func (k *Keeper) load() (*material, error) {
	c, err := k.read()
	if err != nil {
		return nil, err
	}
	m, err := k.files.check(c, k.now())
	if err != nil {
		return nil, err
	}
	for _, expect := range k.expect {
		if err := expect(m.identity); err != nil {
			return nil, fmt.Errorf("certificate %s: %w; give the one that was issued for this use", k.files.Cert, err)
		}
	}
	m.server = k.serverConfig(m)
	return m, nil
}

// Identity returns what the certificate in force says of its holder.
func (k *Keeper) Identity() Identity { return k.state.Load().identity }

// NotAfter returns when the certificate in force will be refused by others: when it, its CA, or one between
// them ends.
func (k *Keeper) NotAfter() time.Time { return k.state.Load().notAfter }

// Problem returns why the files, as the last reload found them, are not in force or not fit any more; nil: all
// is well.
func (k *Keeper) Problem() error { return k.state.Load().problem }

// Warning returns an error that wraps [ErrKeyExposed] if that is so now, else nil. It is worth a line in the log
// after [Open] and whenever files changed.
func (k *Keeper) Warning() error {
	const others = 0o007
	if !k.onDisk {
		return nil
	}
	info, err := os.Stat(k.files.Key)
	if err != nil || info.Mode()&others == 0 { // a missing file is a reload's problem
		return nil
	}
	return fmt.Errorf("%w: %s has mode %04o; give it 0600, or 0640 for a group", ErrKeyExposed, k.files.Key, info.Mode().Perm())
}
