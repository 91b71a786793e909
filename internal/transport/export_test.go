package transport

import "io"

// What a hostile peer needs to speak the protocol, and to break it.

const (
	KindRequest = kindRequest
	KindAnswer  = kindAnswer
	KindPing    = kindPing
	KindPong    = kindPong
	KindChunk   = kindChunk
	KindEnd     = kindEnd

	ForRequests = forRequests
	ForSnapshot = forSnapshot

	MaxFragment = maxFragment
	HeaderSize  = headerSize
)

// SayHello does the dialling side's part after a handshake.
func SayHello(conn io.ReadWriter, why purpose, cluster [16]byte, from, to string) error {
	return greet(conn, hello{version: helloVersion, purpose: why, cluster: cluster, from: from, to: to})
}

// Welcome does the accepting side's part.
func Welcome(conn io.ReadWriter, cluster [16]byte, self string) error {
	_, err := receive(conn, self, cluster, "")
	return err
}

// Frame returns a header as it is on the wire, valid or not.
func Frame(k kind, group uint32, id uint64, length, rest uint32) []byte {
	return frame{kind: k, group: group, id: id, length: length, rest: rest}.appendTo(nil)
}

// RequestFrame returns a whole request that fits in one frame.
func RequestFrame(group uint32, id uint64, target string, command any) []byte {
	b, err := encodeRequest(envelope{remaining: 1e6, target: target}, command, maxFragment)
	if err != nil {
		panic(err)
	}
	return append(Frame(kindRequest, group, id, uint32(len(b.bytes)), 0), b.bytes...)
}

// AnswerFrame returns a whole answer to an AppendEntries.
func AnswerFrame(group uint32, id uint64, answer any) []byte {
	b := encodeAnswer(opAppend, answer, nil)
	return append(Frame(kindAnswer, group, id, uint32(len(b.bytes)), 0), b.bytes...)
}

// ReadFrame reads a header.
func ReadFrame(r io.Reader) (k kind, id uint64, length int, err error) {
	var b [headerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, 0, err
	}
	f, err := parseFrame(b[:], 1<<20)
	return f.kind, f.id, int(f.length), err
}
