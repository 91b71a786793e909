package gateway

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/limit"
)

// reply is an answer of the HTTP front. Every one has the same keys, so that a caller needs no second
// reader for what goes wrong.
type reply struct {
	status         int
	decision, word string          // empty is null
	message        string          // empty is null
	answer         *quotav1.Answer // of a decision
	retry          int64           // seconds; 0: asking again is no use, or not known to be
	id             []byte          // empty is null
}

// replyTo is what an outcome comes to over HTTP.
func replyTo(o *outcome) reply {
	a := reply{status: o.status, decision: o.decision, word: o.word, message: o.message, answer: o.answer, id: o.id}
	switch {
	case o.decided():
		a.retry = o.retry
	case o.status == http.StatusServiceUnavailable:
		a.retry = 1
	}
	return a
}

func (a *reply) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	// Also what is allowed: an allow from a cache would be one that nobody counted.
	h.Set("Cache-Control", "no-store")
	if a.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(a.retry, 10))
	}
	a.setRateLimit(h)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.appendJSON(make([]byte, 0, 384))) // whoever is gone has no use for the answer
}

// appendJSON writes the object by hand: a check is answered without reflection.
func (a *reply) appendJSON(b []byte) []byte {
	b = appendText(append(b, `{"decision":`...), a.decision)
	b = appendText(append(b, `,"reason":`...), a.word)
	b = appendText(append(b, `,"message":`...), a.message)
	b = a.appendLimit(b)
	b = append(b, `,"retry_after":`...)
	if a.retry > 0 {
		b = strconv.AppendInt(b, a.retry, 10)
	} else {
		b = append(b, null...)
	}
	b = a.appendOrigin(b)
	b = append(b, `,"id":`...)
	if len(a.id) > 0 {
		b = append(hex.AppendEncode(append(b, '"'), a.id), '"')
	} else {
		b = append(b, null...)
	}
	return append(b, "}\n"...)
}

const null = "null"

// appendText writes a string, null if it is empty.
func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, null...)
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string can always be written
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendLimit writes what is known of the limit that the answer speaks of.
func (a *reply) appendLimit(b []byte) []byte {
	if a.answer.GetPolicy() == "" {
		return append(b, `,"policy":null,"limit":null,"limit_name":null,"remaining":null`...)
	}
	b = appendText(append(b, `,"policy":`...), a.answer.GetPolicy())
	b = appendAmount(append(b, `,"limit":`...), a.answer.Limit)
	b = appendText(append(b, `,"limit_name":`...), a.answer.GetLimitName())
	return appendAmount(append(b, `,"remaining":`...), a.answer.Remaining)
}

func appendAmount(b []byte, v *uint64) []byte {
	if v == nil {
		return append(b, null...)
	}
	return strconv.AppendUint(b, *v, 10)
}

// appendOrigin writes who decided, and when.
func (a *reply) appendOrigin(b []byte) []byte {
	m := a.answer
	if m == nil {
		return append(b, `,"decision_time_ns":null,"partition":null,"epoch":null,"replayed":null`...)
	}
	b = strconv.AppendInt(append(b, `,"decision_time_ns":`...), m.GetDecisionTimeNs(), 10)
	b = strconv.AppendUint(append(b, `,"partition":`...), uint64(m.GetPartition()), 10)
	b = strconv.AppendUint(append(b, `,"epoch":`...), m.GetEpoch(), 10)
	return strconv.AppendBool(append(b, `,"replayed":`...), m.GetReplayed())
}

// setRateLimit sets the fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10,
// where the answer speaks of a limit whose amount is known:
//
//	RateLimit-Policy: "per-minute";q=3;w=60
//	RateLimit: "per-minute";r=2;t=60
//
// w is left out where q isn't given in whole seconds, or nobody knows in how many: rounded either way it would promise
// something else.
// t is when all of q is available again, rounded up, not when a part of it is: a caller that goes by it is
// never too early. It is left out where that is never.
func (a *reply) setRateLimit(h http.Header) {
	m := a.answer
	if m.GetPolicy() == "" || m.Limit == nil {
		return
	}
	name := fieldString(m.GetLimitName())
	policy := append(append(make([]byte, 0, 64), name...), ";q="...)
	policy = appendFieldInteger(policy, m.GetLimit())
	if w, ok := windowSeconds(m); ok {
		policy = appendFieldInteger(append(policy, ";w="...), w)
	}
	h["Ratelimit-Policy"] = []string{string(policy)}

	left := append(append(make([]byte, 0, 64), name...), ";r="...)
	left = appendFieldInteger(left, m.GetRemaining())
	if m.ResetNs != nil {
		t := uint64(0)
		if reset := m.GetResetNs(); reset > 0 {
			t = uint64(limit.WholeSeconds(reset))
		}
		left = appendFieldInteger(append(left, ";t="...), t)
	}
	h["Ratelimit"] = []string{string(left)}
}

// windowSeconds is the time in which the limit gives its whole amount, if that is whole seconds.
func windowSeconds(m *quotav1.Answer) (uint64, bool) {
	const second = 1_000_000_000
	ns := m.GetWholeAmountNs()
	return uint64(max(0, ns)) / second, ns > 0 && ns%second == 0
}

// fieldString is a string of a structured field (RFC 9651): quotes and backslashes escaped. Limit names
// have neither; nothing else than printing ASCII gets here.
func fieldString(s string) string { return strconv.QuoteToASCII(s) }

// appendFieldInteger writes an integer of a structured field, which has at most fifteen digits; what is
// above says the most that can be said.
func appendFieldInteger(b []byte, v uint64) []byte {
	const most = 999_999_999_999_999
	return strconv.AppendUint(b, min(v, most), 10)
}
