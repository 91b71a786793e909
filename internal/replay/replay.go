package replay

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/replay/accesslog"
	"github.com/quorate/quorate/internal/replay/order"
)

// Config says what to replay.
type Config struct {
	Set    policy.Set
	Domain string // of the rows
	// Against, if not nil, is another set to decide the same rows by.
	Against *policy.Set
	// Log says how lines are read; Columns and Optional are filled in.
	Log accesslog.Options
	// CostColumn names the column of a row's cost; "": every row costs 1.
	CostColumn string
	// Prefix is how many bits of an IPv6 address make a client, 128 for all of them.
	Prefix int
	// Trusted is how many proxies at the right end of a forwarded list, the peer included, are our own.
	Trusted int
	// Memory bounds what is held of rows, in bytes; beyond it they are sorted on disk, in TempDir.
	Memory  int64
	TempDir string
	// Top is how many of the most denied keys are reported.
	Top int
	// Read hears now and then how many lines have been read, and Sorted how many of the rows that were put
	// in order have been decided; nil: nobody.
	Read   func(lines int64)
	Sorted func(decided, rows int64)
	// Lacks hears of the columns that an input doesn't have and the policies look at; nil: nobody.
	Lacks func(input int, columns []string)
	// Fault hears of every line that is bad, Decided of every decision; nil: nobody.
	Fault   func(input int, f accesslog.Fault)
	Decided func(*Decision) error
}

// Source is one input of a replay.
type Source struct {
	Name string
	// Open opens it from its beginning. It is called once more where rows turn out to be in order, or
	// not, only after memory is full, if Again.
	Open  func() (io.ReadCloser, error)
	Again bool
}

// Run replays the sources. Where reading one fails, what was read up to there is replayed, and the
// summary comes beside an *InputError; every other error comes alone.
func Run(ctx context.Context, cfg Config, sources []Source) (*Summary, error) {
	r, err := newRun(cfg, sources)
	if err != nil {
		return nil, err
	}
	sorter := order.New(order.Options{Memory: cfg.Memory, Dir: cfg.TempDir})
	defer func() { _ = sorter.Close() }() // only temporary files
	failed, err := r.feed(ctx, sorter)
	if err != nil {
		return nil, err
	}
	return r.summary(), failed
}

// run is one replay.
type run struct {
	cfg     Config
	sources []Source
	shape   *rowShape
	engine  *engine
	against *engine
	tally   *tally

	inputs   []Input
	counts   accesslog.Counts
	bad      map[string]int64
	reported place // the last line whose fault has been told
	opened   int   // inputs of which it has been told what they lack
	rows     int64 // that were put in order; 0 while they are decided as they are read
	decided  int64 // of these
	buffer   []byte
	row      row
	verdict  verdict
	other    verdict
}

type place struct {
	input int
	line  int64
}

func (p place) before(o place) bool {
	return p.input < o.input || p.input == o.input && p.line < o.line
}

// InputError says that a source could not be read to its end.
type InputError struct {
	Name string
	Err  error
}

func (e *InputError) Error() string { return e.Name + ": " + e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

func newRun(cfg Config, sources []Source) (*run, error) {
	r := &run{cfg: cfg, sources: sources, tally: newTally(cfg.Set, cfg.Top)}
	names, required := Columns(cfg.Set, cfg.Domain)
	var err error
	if r.engine, err = newEngine(cfg.Set, cfg.Domain); err != nil {
		return nil, err
	}
	if cfg.Against != nil {
		more, _ := Columns(*cfg.Against, cfg.Domain)
		names = union(names, more)
		if r.against, err = newEngine(*cfg.Against, cfg.Domain); err != nil {
			return nil, err
		}
		r.tally.compare()
	}
	r.shape = newRowShape(names, required, &cfg)
	r.cfg.Log.Columns, r.cfg.Log.Optional = r.shape.columns, r.shape.optional()
	return r, nil
}

// errUnsorted ends a look at whether the rows are in order.
var errUnsorted = errors.New("rows are not in order")

// feed decides all rows in the order of their times. They are held in memory; where they don't fit and
// were in order so far, the rest is looked through first: what is in order all the way is then decided
// as it is read again, and needs no disk.
func (r *run) feed(ctx context.Context, sorter *order.Sorter) (failed, err error) {
	looking, last := false, int64(0)
	failed, err = r.read(ctx, func(time int64, payload []byte) error {
		switch {
		case looking && time < last:
			return errUnsorted
		case looking:
			last = time
			return nil
		case sorter.Full() && sorter.InOrder() && r.again():
			if time < last { // the very first row that is out of order
				return errUnsorted
			}
			looking, last = true, time
			return sorter.Close()
		}
		last = max(last, time)
		return sorter.Add(time, payload)
	})
	switch {
	case err == nil && looking:
		seen := r.counts
		failed, err = r.read(ctx, r.decide)
		if err == nil && r.counts != seen {
			err = ErrChanged
		}
		return failed, err
	case errors.Is(err, errUnsorted):
		if err := sorter.Close(); err != nil {
			return nil, err
		}
		fresh := order.New(order.Options{Memory: r.cfg.Memory, Dir: r.cfg.TempDir})
		defer func() { _ = fresh.Close() }()
		if failed, err = r.read(ctx, fresh.Add); err != nil {
			return nil, err
		}
		return failed, r.decideAll(ctx, fresh)
	case err != nil:
		return nil, err
	}
	return failed, r.decideAll(ctx, sorter)
}

func (r *run) decideAll(ctx context.Context, sorter *order.Sorter) error {
	r.rows = sorter.Rows()
	return sorter.Each(ctx, r.decide)
}

func (r *run) again() bool {
	for _, s := range r.sources {
		if !s.Again {
			return false
		}
	}
	return true
}

// read reads all sources and hands their rows on. A source that fails ends there, and so does all.
func (r *run) read(ctx context.Context, sink func(time int64, payload []byte) error) (failed, err error) {
	r.inputs, r.counts, r.bad = nil, accesslog.Counts{}, map[string]int64{}
	for i := range r.sources {
		failed, err := r.readSource(ctx, i, sink)
		if err != nil || failed != nil {
			return failed, err
		}
	}
	return nil, nil
}

func (r *run) readSource(ctx context.Context, i int, sink func(int64, []byte) error) (failed, err error) {
	name := r.sources[i].Name
	f, err := r.sources[i].Open()
	if err != nil {
		return &InputError{name, err}, nil
	}
	defer func() { _ = f.Close() }() // nothing was written
	log, err := accesslog.NewReader(f, r.cfg.Log, func(f accesslog.Fault) { r.fault(i, f) })
	var column *accesslog.ColumnError
	switch {
	case errors.As(err, &column): // it was asked for wrongly, and not of this input alone
		return nil, &InputError{name, err}
	case err != nil:
		return &InputError{name, err}, nil
	}
	r.inputs = append(r.inputs, Input{Name: name, Format: log.Format()})
	r.lacks(i, log.Absent())
	err = r.readRows(ctx, i, log, sink)
	r.add(log.Counts())
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	var unreadable *readError
	if errors.As(err, &unreadable) {
		return &InputError{name, unreadable.error}, nil
	}
	return nil, err
}

// lacks tells what columns an input doesn't have, once. A forwarded list is looked for and not asked for.
func (r *run) lacks(input int, columns []string) {
	columns = slices.DeleteFunc(columns, func(name string) bool { return name == forwardedColumn })
	if input >= r.opened && len(columns) > 0 && r.cfg.Lacks != nil {
		r.cfg.Lacks(input, columns)
	}
	r.opened = max(r.opened, input+1)
}

// readError is an error of the reader, not of where its rows go.
type readError struct{ error }

// readRows always ends with an error: of the end, of the log, or of the sink.
func (r *run) readRows(ctx context.Context, i int, log *accesslog.Reader, sink func(int64, []byte) error) error {
	var record accesslog.Record
	for n := 0; ; n++ {
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if r.cfg.Read != nil {
				r.cfg.Read(r.counts.Lines + record.Line)
			}
		}
		if err := log.Next(&record); errors.Is(err, io.EOF) {
			return err
		} else if err != nil {
			return &readError{err}
		}
		payload, bad := r.shape.append(r.buffer[:0], i, record.Line, record.Values)
		r.buffer = payload
		if record.Time == limit.Never {
			bad = &badRow{"time", "the last instant that there is: nothing can come after it"}
		}
		if bad != nil {
			r.counts.Bad++
			r.fault(i, accesslog.Fault{Line: record.Line, Reason: bad.reason, Detail: bad.detail})
			continue
		}
		if err := sink(record.Time, payload); err != nil {
			return err
		}
	}
}

// fault counts a bad line, and tells of it unless an earlier pass has.
func (r *run) fault(input int, f accesslog.Fault) {
	r.bad[f.Reason]++
	if at := (place{input, f.Line}); r.cfg.Fault != nil && r.reported.before(at) {
		r.reported = at
		r.cfg.Fault(input, f)
	}
}

func (r *run) add(c accesslog.Counts) {
	r.counts.Lines += c.Lines
	r.counts.Blank += c.Blank
	r.counts.Header += c.Header
	r.counts.Bad += c.Bad
}

// ErrChanged says that an input has changed while it was read for the second time.
var ErrChanged = errors.New("an input changed while it was read: copy it first, or give more --memory")

// decide decides the next row. Time never goes back: rows come sorted, or were seen to be in order.
func (r *run) decide(time int64, payload []byte) error {
	if time < r.tally.to {
		return ErrChanged
	}
	if r.decided++; r.rows > 0 && r.decided%1024 == 0 && r.cfg.Sorted != nil {
		r.cfg.Sorted(r.decided, r.rows)
	}
	r.shape.read(&r.row, time, payload)
	r.engine.decide(&r.verdict, time, r.row.entries, r.row.cost)
	r.tally.count(time, r.engine, &r.verdict)
	if r.against != nil {
		r.against.decide(&r.other, time, r.row.entries, r.row.cost)
		r.tally.countOther(&r.verdict, &r.other)
	}
	if r.cfg.Decided == nil {
		return nil
	}
	d := r.decision()
	return r.cfg.Decided(&d)
}

func (r *run) decision() Decision {
	v := &r.verdict
	d := Decision{
		Input: r.row.input, Line: r.row.line, Time: r.row.time,
		Allowed: v.allowed, RetryAfter: -1, Shadow: v.onlyShadow(),
	}
	if v.said == nil {
		return d
	}
	p := v.book.set.Policy(v.said.policy)
	d.Key = string(v.book.appendKeyText(nil, v.said))
	d.Policy = p.Namespace + "/" + p.Name
	d.RetryAfter = v.said.retryAfter()
	d.Remaining, d.Limit = v.said.answer.Remaining, v.said.answer.Amount
	d.LimitName, d.Unlimited = v.book.limitName(v.said), v.said.answer.Unlimited
	return d
}
