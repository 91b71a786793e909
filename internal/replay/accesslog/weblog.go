package accesslog

import "bytes"

// The columns of logs of requests. Each has its place in fields.
const (
	fieldIP = iota
	fieldForwardedFor
	fieldHost
	fieldMethod
	fieldPath
	fieldStatus
	fieldUserAgent
	fieldUser
	fieldReferer
	fieldBytes
	fieldCount
)

var fieldNames = [fieldCount]string{
	"ip", "forwarded_for", "host", "method", "path", "status", "user_agent", "user", "referer", "bytes",
}

// fields are what a line of a log of requests says; nil where it says nothing.
type fields [fieldCount][]byte

func (f *fields) setRequest(line []byte) {
	r := readRequest(line)
	f[fieldMethod], f[fieldPath] = r.method, r.path
	if r.host != nil {
		f[fieldHost] = r.host
	}
}

// layout reads the parts of one line of a log of requests. Texts between quotes still have their escapes.
// It returns the time's text, and false where the parts don't make a line of its format.
type layout func(tokens []token, f *fields) (time []byte, ok bool)

var layouts = map[string]layout{
	formatCommon:   readCombined,
	formatCombined: readCombined,
	formatVhost:    readVhost,
	formatEnvoy:    readEnvoy,
	formatALB:      readALB,
}

// readCombined reads the common and combined formats of nginx and Apache:
//
//	ip ident user [time] "request" status bytes "referer" "agent" and more between quotes
//
// The last two and what follows may be missing. A user's name may have spaces in it, and is absent then,
// since nobody can tell where it ends. A line with something else before its address is of another format.
func readCombined(tokens []token, f *fields) (time []byte, ok bool) {
	box := boxAt(tokens)
	if box < 3 || box > 3 && !absent(tokens[1].text) {
		return nil, false
	}
	f[fieldIP] = value(tokens[0].text)
	if box == 3 {
		f[fieldUser] = value(tokens[2].text)
	}
	return readTail(tokens[box:], f)
}

// readVhost reads the combined format with the host in front, as Apache's vhost_combined.
func readVhost(tokens []token, f *fields) (time []byte, ok bool) {
	if len(tokens) < 2 || absent(tokens[1].text) { // the latter has no host in front, and a name with spaces
		return nil, false
	}
	time, ok = readCombined(tokens[1:], f)
	f[fieldHost] = value(tokens[0].text) // which the server chose, and no request in absolute form did
	return time, ok
}

// hostFirst tells whether a line has its host in front of the address: that is followed by an address, or
// has a port and is none itself.
func hostFirst(tokens []token) bool {
	if boxAt(tokens) < 4 || absent(tokens[1].text) {
		return false
	}
	return isAddressList(tokens[1].text) || bytes.IndexByte(tokens[0].text, ':') > 0 && !isAddressList(tokens[0].text)
}

// boxAt finds the bracketed time in front of the request, -1 if there is none. Addresses and names may have
// brackets, too, and a name even be a time: but what no server writes into one is a quote.
func boxAt(tokens []token) int {
	for i, t := range tokens[:max(len(tokens)-1, 0)] {
		if t.boxed && tokens[i+1].quoted && len(t.text) >= 19 && (t.text[2] == '/' || t.text[4] == '-') {
			return i
		}
	}
	return -1
}

// readTail reads [time] "request" status bytes "referer" "agent" ...
func readTail(tokens []token, f *fields) (time []byte, ok bool) {
	if len(tokens) < 3 || !tokens[1].quoted || !isStatus(tokens[2].text) {
		return nil, false
	}
	f.setRequest(tokens[1].text)
	f[fieldStatus] = value(tokens[2].text)
	if len(tokens) > 3 && !tokens[3].quoted {
		f[fieldBytes] = value(tokens[3].text)
	}
	quoted, listed := 0, false
	for i := 3; i < len(tokens); i++ {
		if !tokens[i].quoted {
			continue
		}
		switch quoted++; quoted {
		case 1:
			f[fieldReferer] = value(tokens[i].text)
		case 2:
			f[fieldUserAgent] = value(tokens[i].text)
		default:
			if !listed && isAddressList(tokens[i].text) {
				f[fieldForwardedFor] = tokens[i].text
				listed = quoted == 3 // where it usually stands; the upstream's address may follow
			}
		}
	}
	return tokens[0].text, true
}

// isStatus tells whether the text is a status, or says that there was none.
func isStatus(text []byte) bool {
	if absent(text) {
		return true
	}
	_, ok := digits(text)
	return ok && len(text) <= 3
}

// readEnvoy reads Envoy's default format, and Istio's, now and before 1.9, which have up to three parts
// more in the middle and say the downstream address behind:
//
//	[time] "request" status flags rx tx duration upstream "forwarded-for" "agent" "id" "authority" "upstream"
//	[time] "request" status flags details details "failure" rx tx duration upstream "forwarded-for" ... cluster local downstream-local downstream-remote sni route
//
// Envoy writes headers as they come, quotes and all. So a line is one of these to its last part, or none:
// else a client could move columns by the name of its agent.
func readEnvoy(tokens []token, f *fields) (time []byte, ok bool) {
	if len(tokens) < 7 || !tokens[0].boxed || !tokens[1].quoted || !isStatus(tokens[2].text) {
		return nil, false
	}
	list := 7
	for list < len(tokens) && !tokens[list].quoted {
		list++
	}
	istio := (list == 10 || list == 11) && len(tokens) == list+11
	if !istio && (list != 8 || len(tokens) != list+5) {
		return nil, false
	}
	for i, t := range tokens[list:] {
		if t.quoted != (i < 5) {
			return nil, false
		}
	}
	f.setRequest(tokens[1].text)
	if authority := value(tokens[list+3].text); authority != nil {
		f[fieldHost] = authority
	}
	f[fieldStatus] = value(tokens[2].text)
	f[fieldBytes] = value(tokens[list-3].text)
	f[fieldForwardedFor] = value(tokens[list].text)
	f[fieldUserAgent] = value(tokens[list+1].text)
	if istio {
		f[fieldIP] = value(tokens[list+8].text)
	}
	return tokens[0].text, true
}

// readALB reads the format of AWS application load balancers:
//
//	type time elb client:port target:port 3 durations 2 statuses received sent "request" "agent" cipher protocol group "trace" "domain" ...
func readALB(tokens []token, f *fields) (time []byte, ok bool) {
	if len(tokens) < 14 || !tokens[12].quoted || !tokens[13].quoted || !isStatus(tokens[8].text) || !isALBType(tokens[0].text) {
		return nil, false
	}
	f[fieldIP] = value(tokens[3].text)
	f[fieldStatus] = value(tokens[8].text)
	f[fieldBytes] = value(tokens[11].text)
	if len(tokens) > 18 && tokens[18].quoted {
		f[fieldHost] = value(tokens[18].text)
	}
	f.setRequest(tokens[12].text)
	if bytes.IndexByte(f[fieldHost], '-') == 0 { // https://-:443- is how it writes that there was none
		f[fieldHost] = nil
	}
	f[fieldUserAgent] = value(tokens[13].text)
	return tokens[1].text, true
}

func isALBType(text []byte) bool {
	switch string(text) {
	case "http", "https", "h2", "grpcs", "ws", "wss":
		return true
	}
	return false
}

// weblog is the parser of a layout.
type weblog struct {
	format  string
	layout  layout
	wanted  []int // places among fields
	tokens  [maxTokens]token
	fields  fields
	scratch []byte
}

func newWeblog(format string, o *Options) (*weblog, error) {
	w := &weblog{format: format, layout: layouts[format], scratch: make([]byte, 0, 4096)}
	has := func(name string) bool {
		switch name {
		case "host":
			return format != formatCommon && format != formatCombined
		case "user", "referer":
			return format != formatEnvoy && format != formatALB
		case "forwarded_for":
			return format != formatALB && format != formatCommon
		case "user_agent":
			return format != formatCommon
		}
		return true
	}
	var there []string
	for _, name := range fieldNames {
		if has(name) {
			there = append(there, name)
		}
	}
	var err error
	w.wanted, err = bind(format, there, o, func(name string) int {
		for i, n := range fieldNames {
			if n == name && has(name) {
				return i
			}
		}
		return -1
	})
	return w, err
}

func (w *weblog) places() []int { return w.wanted }

func (w *weblog) parse(line []byte, r *Reader) *Fault {
	if hasLineEnd(line) {
		return fault("columns", "a line break of another kind than the log's others: %s", excerpt(line))
	}
	tokens, closed := tokenize(line, w.tokens[:0])
	if !closed {
		return fault("quotes", "a quote or bracket that nothing closes: %s", excerpt(line))
	}
	w.fields = fields{}
	text, ok := w.layout(tokens, &w.fields)
	if !ok {
		return fault("columns", "not a line of format %s: %s", w.format, excerpt(line))
	}
	at, err := r.times.readText(text) // whatever the unit of numbers is: there are none here
	if err != nil {
		return fault("time", "%v: %s", err, excerpt(text))
	}
	w.scratch = w.scratch[:0]
	r.record.Time = at
	for i, field := range w.wanted {
		r.record.Values[i] = nil
		if field >= 0 && w.fields[field] != nil {
			r.record.Values[i] = unescape(w.fields[field], &w.scratch)
		}
	}
	return nil
}
