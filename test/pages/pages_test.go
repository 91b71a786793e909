// Package pages looks at the pages that the programs write in a real browser.
package pages

import (
	"bytes"
	"context"
	"image"
	_ "image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser returns Chromium's path. Without it the test fails where everything has to be there, and skips
// elsewhere.
func browser(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err == nil {
		return path
	}
	const missing = "chromium is missing: Debian's package chromium brings it"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// command runs a program of this repository.
func command(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"run"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// shoot takes a picture of a page, and fails if the browser complains of anything in it. Nothing but the
// file can be reached.
func shoot(t *testing.T, chromium, page string, width int, dark bool) image.Image {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "page.png")
	scheme := "1"
	if dark {
		scheme = "0"
	}
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
		"--blink-settings=preferredColorScheme="+scheme, "--window-size="+size(width), "--screenshot="+path, "file://"+page)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, ":CONSOLE") { // a refused resource, a fault in the page
			t.Errorf("the browser says: %s", line)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	picture, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

func size(width int) string {
	return map[int]string{1200: "1200,1300", 500: "500,1700"}[width]
}

// brightness is that of a column of a picture, and whether all of it has the same: that of the page.s
// ground, where nothing reaches the edge.
func brightness(p image.Image, x int) (ground uint32, clean bool) {
	at := func(y int) uint32 { r, g, b, _ := p.At(x, y).RGBA(); return (r + g + b) / 3 >> 8 }
	ground, clean = at(0), true
	for y := p.Bounds().Min.Y; y < p.Bounds().Max.Y; y++ {
		if at(y) != ground {
			clean = false
		}
	}
	return ground, clean
}

// share is how much of a picture is of the colour that a test accepts, in thousandths.
func share(p image.Image, is func(r, g, b uint32) bool) (thousandths int) {
	n := 0
	for y := p.Bounds().Min.Y; y < p.Bounds().Max.Y; y++ {
		for x := p.Bounds().Min.X; x < p.Bounds().Max.X; x++ {
			if r, g, b, _ := p.At(x, y).RGBA(); is(r>>8, g>>8, b>>8) {
				n++
			}
		}
	}
	return n * 1000 / (p.Bounds().Dx() * p.Bounds().Dy())
}

// TestTheReplayPageInABrowser: light and dark as the reader wants it, charts drawn, nothing beyond the edge of
// a narrow window, and no complaint of the browser, which can reach nothing.
func TestTheReplayPageInABrowser(t *testing.T) {
	chromium := browser(t)
	dir := t.TempDir()
	trace, page := filepath.Join(dir, "trace.csv"), filepath.Join(dir, "report.html")
	command(t, "./cmd/quotactl", "gensample", "-o", trace)
	command(t, "./cmd/quotactl", "replay", trace, "--rate", "2", "--burst", "20", "--key", "ip", "--html", page)
	red := func(r, g, b uint32) bool { return r > g+70 && r > b+70 }
	for _, tc := range []struct {
		width int
		dark  bool
	}{{1200, false}, {1200, true}, {500, false}, {500, true}} {
		p := shoot(t, chromium, page, tc.width, tc.dark)
		left, cleanLeft := brightness(p, 0)
		right, cleanRight := brightness(p, p.Bounds().Max.X-1)
		if !cleanLeft || !cleanRight || left != right {
			t.Errorf("%d wide, dark %v: something reaches the edge", tc.width, tc.dark)
		}
		if tc.dark && left > 60 || !tc.dark && left < 200 {
			t.Errorf("%d wide, dark %v: the ground has brightness %d", tc.width, tc.dark, left)
		}
		if n := share(p, red); n < 10 {
			t.Errorf("%d wide, dark %v: only %d thousandths are of the colour of what is blocked", tc.width, tc.dark, n)
		}
	}
}
