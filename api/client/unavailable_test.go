package client_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// refused asks, and returns the error that the check ends with.
func (s *scene) refused(m *quotav1.CheckRequest) *client.Unavailable {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	u := new(client.Unavailable)
	if a, err := s.client.Check(ctx, m); !errors.As(err, &u) {
		s.Fatalf("the check ends with %v, %v", a, err)
	}
	return u
}

// TestAnErrorNamesItsCheck by the id that the nodes were asked under: the caller's, the one that the client made, or the
// one that took its place.
func TestAnErrorNamesItsCheck(t *testing.T) {
	quarantined := fails(quotav1.FailureReason_FAILURE_REASON_QUARANTINE)
	play(t, 1, answering(quarantined, quarantined, staleTime(8000), quarantined), func(s *scene) {
		u := s.refused(asks("user", "u1"))
		if asked := s.sends()[0].GetCheck().GetDecisionId(); len(asked) != 16 || !bytes.Equal(u.DecisionID, asked) {
			s.Errorf("made: %x, asked under %x", u.DecisionID, asked)
		}
		m := asks("user", "u1")
		m.DecisionId = []byte("0123456789abcdef")
		if u := s.refused(m); !bytes.Equal(u.DecisionID, m.DecisionId) {
			s.Errorf("given: %x", u.DecisionID)
		} else if u.DecisionID[0]++; m.DecisionId[0] != '0' {
			s.Error("the error holds its caller's memory")
		}
		u = s.refused(asks("user", "u1"))
		if all := s.sends(); len(all) != 4 || !bytes.Equal(u.DecisionID, all[3].GetCheck().GetDecisionId()) ||
			bytes.Equal(u.DecisionID, all[2].GetCheck().GetDecisionId()) {
			s.Errorf("renewed: %x after %v", u.DecisionID, all)
		}
	})
}

// TestAnErrorOfNoCheckHasNoID: bad input has none, and neither has an inspection.
func TestAnErrorOfNoCheckHasNoID(t *testing.T) {
	play(t, 1, answering(allowed), func(s *scene) {
		m := asks("", "u1")
		if u := s.refused(m); len(u.DecisionID) != 0 {
			s.Errorf("bad input: %x", u.DecisionID)
		}
		u := new(client.Unavailable)
		_, err := s.client.Inspect(context.Background(), &quotav1.InspectRequest{Domain: "api", Descriptor_: descriptor("", "u1")})
		if !errors.As(err, &u) || len(u.DecisionID) != 0 {
			s.Errorf("an inspection: %v", err)
		}
		s.client.Close()
		if u := s.refused(asks("user", "u1")); len(u.DecisionID) != 16 || len(s.sends()) != 0 {
			s.Errorf("of a check that was never sent: %x", u.DecisionID)
		}
	})
}
