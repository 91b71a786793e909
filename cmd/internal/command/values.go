package command

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// ParseLevel reads the least level of a log.
func ParseLevel(text string) (slog.Level, error) {
	level, known := levels[strings.ToLower(text)]
	if !known {
		return 0, fmt.Errorf("%q is not one of debug, info, warn, error", Clip(text))
	}
	return level, nil
}

// SplitAddress takes HOST:PORT apart, with a port from leastPort on. The host may be empty. It resolves nothing: that is for
// whoever dials or listens.
func SplitAddress(text string, leastPort uint64) (host, port string, err error) {
	host, port, err = net.SplitHostPort(text)
	if err != nil {
		return "", "", fmt.Errorf("%q is not HOST:PORT, as in 127.0.0.1:8081", Clip(text))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n < leastPort || strconv.FormatUint(n, 10) != port {
		return "", "", fmt.Errorf("%q has no port from %d to 65535", Clip(text), leastPort)
	}
	return host, port, nil
}

// Clip is the front of a long text, for a message.
func Clip(text string) string {
	const enough = 60
	if len(text) > enough {
		return text[:enough] + "..."
	}
	return text
}
