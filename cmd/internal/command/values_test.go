package command_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/cmd/internal/command"
)

// TestAnAddressIsAHostAndAPort, and what is none is told in its own words.
func TestAnAddressIsAHostAndAPort(t *testing.T) {
	long := strings.Repeat("x", 100)
	for text, want := range map[string]string{
		"127.0.0.1:8081": "",
		"[::1]:0":        "",
		":65535":         "",
		"n1.example:80":  "",
		"":               `"" is not HOST:PORT, as in 127.0.0.1:8081`,
		"n1":             `"n1" is not HOST:PORT, as in 127.0.0.1:8081`,
		"::1:80":         `"::1:80" is not HOST:PORT, as in 127.0.0.1:8081`,
		"n1:":            `"n1:" has no port from 0 to 65535`,
		"n1:http":        `"n1:http" has no port from 0 to 65535`,
		"n1:65536":       `"n1:65536" has no port from 0 to 65535`,
		"n1:080":         `"n1:080" has no port from 0 to 65535`,
		"n1:-1":          `"n1:-1" has no port from 0 to 65535`,
		long:             `"` + long[:60] + `..." is not HOST:PORT, as in 127.0.0.1:8081`,
	} {
		host, port, err := command.SplitAddress(text, 0)
		switch {
		case err == nil && want == "" && strings.Trim(host, "[]")+":"+port == strings.NewReplacer("[", "", "]", "").Replace(text):
		case err == nil || err.Error() != want:
			t.Errorf("%q: host %q, port %q, %v, want %s", text, host, port, err, want)
		}
	}
	if _, _, err := command.SplitAddress("n1:0", 1); err == nil || err.Error() != `"n1:0" has no port from 1 to 65535` {
		t.Error(err)
	}
}

// TestLevelsHaveFourNames, in letters of either size.
func TestLevelsHaveFourNames(t *testing.T) {
	for text, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError, "INFO": slog.LevelInfo} {
		if got, err := command.ParseLevel(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "info+1", "loud"} {
		if got, err := command.ParseLevel(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
