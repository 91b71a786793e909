package accesslog

import (
	"fmt"
	"strings"
	"time"
)

// Options say how to read a log.
type Options struct {
	// Format is one of Formats, or "" or "auto": detected from the first lines.
	Format string
	// Columns are the wanted columns, in the order of Record.Values.
	Columns []string
	// Optional are those of them that a log may lack.
	Optional []string
	// TimeColumn names the column of the time in CSV, TSV and JSON; "": one of the usual names.
	TimeColumn string
	// Unit is what bare numbers count since 1970.
	Unit Unit
	// Zone is that of times that name none; nil: such a time is bad.
	Zone *time.Location
	// Names are the columns of a CSV or TSV file without a header.
	Names []string
	// MaxLine is the longest line in bytes; a longer one is bad. Default 1 MiB.
	MaxLine int
}

// Unit is what a time that is a bare number counts.
type Unit uint8

// The units. UnitAuto goes by the size of the first number; UnitText refuses numbers.
const (
	UnitAuto Unit = iota
	UnitSeconds
	UnitMillis
	UnitMicros
	UnitNanos
	UnitText
)

var unitNames = []string{"auto", "s", "ms", "us", "ns", "rfc3339"}

// String is the name that ParseUnit reads.
func (u Unit) String() string { return unitNames[u] }

// ParseUnit reads the name of a unit.
func ParseUnit(name string) (Unit, error) {
	for u, n := range unitNames {
		if n == name {
			return Unit(u), nil
		}
	}
	return 0, fmt.Errorf("unknown unit %q: want one of %s", name, strings.Join(unitNames, ", "))
}

// Record is one request, as a line of a log tells it.
type Record struct {
	Line int64 // from 1; of a value with line breaks in it, the first
	Time int64 // nanoseconds since 1970, never negative
	// Values has one for each wanted column; nil where the line has none. They are good until the next
	// record is read.
	Values [][]byte
}

// Fault is a line that is no record.
type Fault struct {
	Line int64
	// Reason is one of a few words: time, columns, quotes, json, too long.
	Reason string
	Detail string // for people, one line
}

// Counts are the lines read so far. Lines = records + Bad + Blank + Header always; a CSV record with line
// breaks in its values counts as one line.
type Counts struct {
	Lines, Blank, Header, Bad int64 // Header: header and comment lines
}

// ColumnError says that a log lacks columns.
type ColumnError struct {
	Format  string
	Missing []string
	There   []string // the columns that it has
}

// Error names what is missing and what there is instead.
func (e *ColumnError) Error() string {
	what := fmt.Sprintf("no column %s in a log of format %s", strings.Join(e.Missing, ", "), e.Format)
	for i, name := range e.There {
		switch {
		case i == 0:
			what += "; it has "
		case len(what) > 500:
			return fmt.Sprintf("%s and %d more", what, len(e.There)-i)
		default:
			what += ", "
		}
		what += plain(name)
	}
	return what
}

// plain is a name out of a log as people may see it: quoted where it holds more than letters that a
// terminal shows, or very many.
func plain(name string) string {
	if quoted := excerpt([]byte(name)); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// The formats.
const (
	formatCommon     = "common"
	formatCombined   = "combined"
	formatVhost      = "vhost"
	formatEnvoy      = "envoy"
	formatALB        = "alb"
	formatCloudFront = "cloudfront"
	formatCSV        = "csv"
	formatTSV        = "tsv"
	formatJSON       = "json"

	// formatEmpty is what a log without a line is said to be.
	formatEmpty = "empty"
)

// Formats names all formats that are read.
func Formats() []string {
	return []string{
		formatCommon, formatCombined, formatVhost, formatEnvoy, formatALB,
		formatCloudFront, formatCSV, formatTSV, formatJSON,
	}
}
