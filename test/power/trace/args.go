package trace

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// parse reads the arguments of a call.
func (c *Call) parse(text string) error {
	for _, a := range split(text) {
		arg := Arg{Text: a}
		var err error
		switch {
		case strings.HasPrefix(a, `"`):
			arg.Bytes, err = quoted(a)
		case strings.HasSuffix(a, ">") && strings.Contains(a, "<"):
			_, file, _ := strings.Cut(a, "<")
			arg.File, err = unhex(strings.TrimSuffix(file, ">"))
		case strings.HasPrefix(a, "[{"): // of writev and its like
			arg.Bytes, err = vector(a)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		c.Args = append(c.Args, arg)
	}
	return nil
}

// split cuts arguments at the commas that are in no bracket and no string. All strings are in hex, so none holds a
// quote or a bracket; what strace says of sockets holds neither a comma nor a quote.
func split(text string) (args []string) {
	depth, from := 0, 0
	quotes := false
	for i := range len(text) {
		switch b := text[i]; {
		case b == '"':
			quotes = !quotes
		case quotes:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		case b == ',' && depth == 0:
			args = append(args, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	if last := strings.TrimSpace(text[from:]); last != "" || len(args) > 0 {
		args = append(args, last)
	}
	return args
}

var errCutShort = errors.New("bytes are cut short: strace needs a larger -s")

// quoted reads a string in hex.
func quoted(text string) (string, error) {
	inner, rest, ok := strings.Cut(text[1:], `"`)
	if !ok || rest != "" {
		return "", errCutShort
	}
	return unhex(inner)
}

// vector reads the bytes of all of a vector's strings, one after the other.
func vector(text string) (string, error) {
	var all strings.Builder
	for rest := text; ; {
		_, after, found := strings.Cut(rest, `iov_base="`)
		if !found {
			return all.String(), nil
		}
		inner, next, ok := strings.Cut(after, `"`)
		if !ok || strings.HasPrefix(next, "...") {
			return "", errCutShort
		}
		b, err := unhex(inner)
		if err != nil {
			return "", err
		}
		all.WriteString(b)
		rest = next
	}
}

// unhex reads \x41\x42; what isn't in hex is left as it is, as what strace says of sockets.
func unhex(text string) (string, error) {
	if !strings.HasPrefix(text, `\x`) {
		return text, nil
	}
	b, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	if err != nil {
		return "", fmt.Errorf("not in hex: %.80q", text)
	}
	return string(b), nil
}
