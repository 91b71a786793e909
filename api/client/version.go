package client

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// Version is the version of a policy set: a number, which every change raises by one, within an epoch, which a restored
// cluster raises. The zero one is none's, and comes before all others.
type Version struct{ Epoch, Number uint64 }

// VersionOf is what a message says; nil: none.
func VersionOf(m *quotav1.SetVersion) Version { return Version{m.GetEpoch(), m.GetNumber()} }

// ParseVersion reads what String has written.
func ParseVersion(text string) (Version, error) {
	epoch, number, _ := strings.Cut(text, ".")
	e, badEpoch := strconv.ParseUint(epoch, 10, 64)
	n, badNumber := strconv.ParseUint(number, 10, 64)
	if badEpoch != nil || badNumber != nil {
		return Version{}, fmt.Errorf("%q: not EPOCH.NUMBER, as in 1.6", text)
	}
	return Version{e, n}, nil
}

// String is EPOCH.NUMBER, as in 1.6.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Epoch, v.Number) }

// Message is the version as nodes are told it.
func (v Version) Message() *quotav1.SetVersion {
	return &quotav1.SetVersion{Epoch: v.Epoch, Number: v.Number}
}

// Before says that v came into force before o.
func (v Version) Before(o Version) bool {
	return cmp.Or(cmp.Compare(v.Epoch, o.Epoch), cmp.Compare(v.Number, o.Number)) < 0
}
