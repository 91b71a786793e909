package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/quorate/quorate/internal/keyspace"
)

// maxBody bounds the body of a POST, in bytes.
const maxBody = 64 << 10

// readBody reads a POST: {"domain": "...", "descriptors": [{"name": "value"}], "cost": 1}.
func readBody(w http.ResponseWriter, r *http.Request) (question, *badInput) {
	if !isJSON(r.Header.Get("Content-Type")) {
		return question{}, &badInput{&fault{"content-type", "is not application/json"}, http.StatusUnsupportedMediaType}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return question{}, &badInput{faultf("body", "has more than %d bytes", maxBody), http.StatusRequestEntityTooLarge}
	}
	if err != nil {
		return question{}, bad(&fault{"body", "could not be read"})
	}
	q, f := parseBody(body)
	if f != nil {
		return q, bad(f)
	}
	return q, nil
}

func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	charset, named := params["charset"]
	return err == nil && media == "application/json" && (!named || strings.EqualFold(charset, "utf-8"))
}

// parseBody reads a body more strictly than package json would: no unknown and no repeated names, no
// other case, nothing behind the end, and no text that reading would change.
func parseBody(body []byte) (question, *fault) {
	q := question{cost: 1}
	if !json.Valid(body) { // which also bounds its depth, and leaves nothing behind its end
		return q, &fault{"body", "is not one JSON value"}
	}
	p := bodyParser{json.NewDecoder(bytes.NewReader(body))}
	p.UseNumber()
	f := p.object("", func(name string) *fault {
		var f *fault
		switch name {
		case domainField:
			q.named = true
			q.domain, f = p.text(domainField)
		case costField:
			q.cost, f = p.cost()
		case "descriptors":
			q.descriptors, f = p.descriptors()
		default:
			f = &fault{quote(name), "is not a field of a check; those are domain, descriptors and cost"}
		}
		return f
	})
	if f != nil {
		return q, f
	}
	if q.descriptors == nil {
		return q, &fault{"descriptors", "is missing"}
	}
	return q, nil
}

// bodyParser reads token by token. Its field arguments name the place for messages.
type bodyParser struct{ *json.Decoder }

// token reads the next token; nil, without a fault, is JSON's null.
func (p bodyParser) token() (json.Token, *fault) {
	t, err := p.Token()
	if err != nil {
		return nil, faultf("body", "is not JSON at byte %d", p.InputOffset())
	}
	return t, nil
}

// object reads an object; each must read the value of the name that it is given.
func (p bodyParser) object(field string, each func(name string) *fault) *fault {
	where := field
	if where == "" {
		where = "body"
	}
	if t, f := p.token(); f != nil {
		return f
	} else if t != json.Delim('{') {
		return &fault{where, "is not an object"}
	}
	seen := map[string]bool{}
	for p.More() {
		t, f := p.token()
		if f != nil {
			return f
		}
		name, ok := t.(string)
		if !ok || seen[name] {
			return &fault{where, "has " + quote(name) + " twice"}
		}
		seen[name] = true
		if f := changed(where, name); f != nil {
			return f
		}
		if f := each(name); f != nil {
			return f
		}
	}
	_, f := p.token()
	return f
}

func (p bodyParser) text(field string) (string, *fault) {
	t, f := p.token()
	if f != nil {
		return "", f
	}
	s, ok := t.(string)
	if !ok {
		return "", &fault{field, "is not a string"}
	}
	return s, changed(field, s)
}

// changed refuses the character that package json puts where it can't read: after that two values that
// differ could be one.
func changed(field, s string) *fault {
	if strings.ContainsRune(s, utf8.RuneError) {
		return &fault{field, "has text that is not UTF-8, or U+FFFD, which stands for such"}
	}
	return nil
}

// cost reads a number written as digits; null is as good as absent.
func (p bodyParser) cost() (uint64, *fault) {
	t, f := p.token()
	if f != nil {
		return 0, f
	}
	if t == nil {
		return 1, nil
	}
	n, _ := t.(json.Number)
	return parseCost(n.String())
}

func (p bodyParser) descriptors() ([][]keyspace.Entry, *fault) {
	if t, f := p.token(); f != nil {
		return nil, f
	} else if t != json.Delim('[') {
		return nil, &fault{"descriptors", "is not a list"}
	}
	list := [][]keyspace.Entry{}
	for p.More() {
		field := index("descriptors", len(list))
		var entries []keyspace.Entry
		f := p.object(field, func(name string) *fault {
			value, f := p.text(field + "." + quote(name))
			entries = append(entries, keyspace.Entry{Name: name, Value: value})
			return f
		})
		if f != nil {
			return nil, f
		}
		if list = append(list, entries); len(list) > keyspace.MaxDescriptors {
			return nil, faultf("descriptors", "has more than %d descriptors", keyspace.MaxDescriptors)
		}
	}
	if _, f := p.token(); f != nil {
		return nil, f
	}
	if len(list) == 0 {
		return nil, &fault{"descriptors", "is empty"}
	}
	return list, nil
}
