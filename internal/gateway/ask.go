package gateway

import (
	"context"
	"errors"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
)

// check asks one question, whose bounds are looked at already, and says what became of it.
func (s *Server) check(ctx context.Context, front string, question *quotav1.CheckRequest) outcome {
	o := s.guarded(front, func() outcome {
		answer, err := s.cfg.Asker.Check(ctx, question)
		if err == nil && ctx.Err() != nil {
			return lost(answer) // too late: whoever asked has given up, and must not be told to go on
		}
		return judge(answer, err)
	})
	s.metrics.answers.WithLabelValues(front, o.label()).Inc()
	return o
}

// inspect asks what a descriptor has used. It is nil with an outcome that says why.
func (s *Server) inspect(ctx context.Context, question *quotav1.InspectRequest) (response *quotav1.InspectResponse, o outcome) {
	o = s.guarded(frontGRPC, func() outcome {
		var err error
		if response, err = s.cfg.Asker.Inspect(ctx, question); err == nil {
			return outcome{}
		}
		response = nil
		if errors.Is(err, context.DeadlineExceeded) {
			return failed(quotav1.FailureReason_FAILURE_REASON_DEADLINE, "the deadline passed before an answer came")
		}
		return failureIn(err)
	})
	return response, o
}

// guarded asks while there is room for one more question. The bound can only refuse.
func (s *Server) guarded(front string, ask func() outcome) outcome {
	defer s.inFlight.Add(-1)
	if s.inFlight.Add(1) > int64(s.cfg.MaxInFlight) {
		s.metrics.refused.WithLabelValues(front, refusedInFlight).Inc()
		return failed(quotav1.FailureReason_FAILURE_REASON_OVERLOADED, "too many questions are in flight in this gateway")
	}
	return ask()
}

// examine says why a check over gRPC is not asked, nil if it is, and gives it the domain that it may leave out. Place
// is where it stands in the caller's message.
func (s *Server) examine(id access.Identity, m *quotav1.CheckRequest, place string) *outcome {
	domain, refused := s.domainOf(frontGRPC, m.GetDomain(), m.GetDomain() != "", place)
	switch {
	case refused != nil:
		return refused
	case !id.MayCheck(domain):
		return s.forbid("the certificate may not check in this domain")
	}
	m.Domain = domain
	return s.refuse(frontGRPC, checkFault(m), place)
}

// examineInspection is examine for an inspection.
func (s *Server) examineInspection(id access.Identity, m *quotav1.InspectRequest) *outcome {
	domain, refused := s.domainOf(frontGRPC, m.GetDomain(), m.GetDomain() != "", "")
	switch {
	case refused != nil:
		return refused
	case !id.MayInspect(domain):
		return s.forbid("the certificate may not inspect in this domain")
	}
	m.Domain = domain
	return s.refuse(frontGRPC, descriptorFault(m.GetDescriptor_()), "descriptor")
}

// domainOf is the domain that a question names, or the only one there is if it names none. Before the domains
// are known nobody can tell whether one had to be named.
func (s *Server) domainOf(front, name string, named bool, place string) (string, *outcome) {
	if named {
		return name, s.refuse(front, domainFault(name), place)
	}
	domains := s.cfg.Asker.Domains()
	if len(domains) == 0 && !s.cfg.Asker.Ready() {
		o := failed(quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING, "")
		return "", &o
	}
	domain, f := onlyOf(domains)
	return domain, s.refuse(front, f, place)
}

// refuse is what a fault comes to; nil for none.
func (s *Server) refuse(front string, f *fault, place string) *outcome {
	if f == nil {
		return nil
	}
	s.metrics.refused.WithLabelValues(front, refusedInput).Inc()
	o := refusal(f.under(place))
	return &o
}

func (s *Server) forbid(message string) *outcome {
	s.metrics.refused.WithLabelValues(frontGRPC, refusedDomain).Inc()
	o := failed(quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED, message)
	return &o
}
