package client_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
)

// TestTheBudgetIsATenthOfTheChecksAndTenASecond, and no more than its bound at once.
func TestTheBudgetIsATenthOfTheChecksAndTenASecond(t *testing.T) {
	now := int64(time.Hour)
	b := client.NewBudget(func() int64 { return now })
	taken := func() (n int) {
		for b.Take() {
			n++
		}
		return n
	}
	if n := taken(); n != client.BudgetAtMost {
		t.Errorf("%d repetitions at once", n)
	}
	for range 1000 {
		b.Earn()
	}
	if n := taken(); n != 100 {
		t.Errorf("%d repetitions for a thousand checks", n)
	}
	n := 0
	for range 3000 { // in parts that are no whole repetitions
		now += int64(time.Millisecond)
		n += taken()
	}
	if n != 30 {
		t.Errorf("%d repetitions in three seconds", n)
	}
	now += int64(24 * time.Hour)
	for range 1 << 20 {
		b.Earn()
	}
	if n := taken(); n != client.BudgetAtMost {
		t.Errorf("%d repetitions after a day", n)
	}
	now -= int64(time.Second) // a clock that doesn't keep its word earns nothing
	if n := taken(); n != 0 {
		t.Errorf("%d repetitions from time that went back", n)
	}
}
