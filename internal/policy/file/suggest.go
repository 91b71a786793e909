package file

import "strings"

// synonyms are names that people know from elsewhere, each with what it is called here.
var synonyms = map[string][]string{
	"limit":     {"capacity"},
	"capacity":  {"limit"},
	"burst":     {"capacity"},
	"rate":      {"refill", "limit"},
	"window":    {"period"},
	"period":    {"window"},
	"interval":  {"window", "period"},
	"keyby":     {"key"},
	"overrides": {"amounts"},
}

// suggest returns the known field that name may be a slip for, empty if none comes near.
func suggest(name string, known []field) string {
	lower := strings.ToLower(name)
	for _, other := range synonyms[lower] {
		for _, f := range known {
			if f.name == other {
				return other
			}
		}
	}
	best, nearest := "", 3 // two slips at most,
	for _, f := range known {
		d := distance(lower, strings.ToLower(f.name))
		if d < nearest && 2*d < len(f.name) { // and most of the name right
			best, nearest = f.name, d
		}
	}
	return best
}

// distance is the number of bytes to insert, delete or replace to make b of a (Levenshtein), or a large
// number for what can't be a slip.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 1 << 30
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
