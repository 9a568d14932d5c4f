package lineedit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// writerVariable makes the test binary a program that adds lines, tells each that is added,
// and ends after so many.
const writerVariable = "GLIMPSE_TEST_HISTORY"

func TestMain(m *testing.M) {
	if spec := os.Getenv(writerVariable); spec != "" {
		name, rest, _ := strings.Cut(spec, " ")
		var from, n int
		var path string
		fmt.Sscanf(rest, "%d %d %s", &from, &n, &path)
		var h history
		if err := h.openFile(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for i := from; i < from+n; i++ {
			if err := h.addLine(fmt.Sprintf("%s %d 漢字", name, i), true); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(i)
		}
		return
	}
	os.Exit(m.Run())
}

// writer starts a program that adds n lines from a number on.
func writer(t *testing.T, name string, from, n int, path string) (*exec.Cmd, io.Reader) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %s", writerVariable, name, from, n, path))
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, out
}

func historyLines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if lines[0] != header {
		t.Fatalf("the file begins with %q, want %q", lines[0], header)
	}
	return lines[1:]
}

// TestHistoryKilled: a program that is killed while it writes loses the last line at worst,
// and leaves no more than 1,000, which only their owner can read.
func TestHistoryKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "states", "chat_history")
	next := 0
	for kill := range 12 {
		n := 1 << 20
		if kill == 0 {
			n = maxHistory - 4 // at once to where files are replaced
		}
		c, out := writer(t, "killed", next, n, path)
		said := bufio.NewScanner(out)
		for begun := false; said.Scan(); begun = true {
			if kill > 0 && !begun {
				timer := time.AfterFunc(rand.N(60*time.Millisecond), func() { c.Process.Kill() })
				defer timer.Stop()
			}
			if _, err := fmt.Sscanf(said.Text(), "%d", &next); err != nil {
				t.Fatalf("%s", said.Text())
			}
			next++ // the first that is not known to be there
		}
		c.Wait()
		lines := historyLines(t, path)
		if len(lines) > maxHistory {
			t.Fatalf("%d lines", len(lines))
		}
		// The last line may have been added and not told, or have been cut.
		i := slices.Index(lines, fmt.Sprintf("killed %d 漢字", next-1))
		if i < 0 || i < len(lines)-2 {
			t.Fatalf("after kill %d: line %d is at %d of %d", kill, next-1, i, len(lines))
		}
		for at := i; at >= 0; at-- {
			if want := fmt.Sprintf("killed %d 漢字", next-1-(i-at)); lines[at] != want {
				t.Fatalf("after kill %d: line %d of %d is %q, want %q", kill, at, len(lines), lines[at], want)
			}
		}
		if i+1 < len(lines) {
			next++
		}
	}
	if len(historyLines(t, path)) < maxHistory-2 {
		t.Errorf("%d lines: no file was replaced", len(historyLines(t, path)))
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// TestHistoryOfTwo: two programs at once lose none of their lines.
func TestHistoryOfTwo(t *testing.T) {
	const each = 100
	path := filepath.Join(t.TempDir(), "chat_history")
	var old strings.Builder // so many that the file is replaced while both write
	fmt.Fprintln(&old, header)
	for i := range maxHistory - each/2 {
		fmt.Fprintln(&old, "old", i)
	}
	if err := os.WriteFile(path, []byte(old.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var all []*exec.Cmd
	for _, name := range []string{"a", "b"} {
		c, out := writer(t, name, 0, each, path)
		go io.Copy(io.Discard, out)
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	next := map[string]int{}
	for _, line := range historyLines(t, path) {
		name, n, _ := strings.Cut(line, " ")
		if name == "old" {
			continue
		}
		if n != fmt.Sprintf("%d 漢字", next[name]) {
			t.Fatalf("%q, want line %d of %s", line, next[name], name)
		}
		next[name]++
	}
	if next["a"] != each || next["b"] != each {
		t.Errorf("%v lines, want %d of each", next, each)
	}
}

// TestHistory: what is kept, and what is read of files that are not as they should be.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat_history")
	if err := os.WriteFile(path, []byte(header+"\none\n\none\n  \ntwo\ntwo\n\x1b[2J\nbad \xff\ncut"), 0o600); err != nil {
		t.Fatal(err)
	}
	var h history
	if err := h.openFile(path); err != nil {
		t.Fatal(err)
	}
	if want := []string{"one", "two", "cut"}; !slices.Equal(h.lines, want) {
		t.Errorf("%q, want %q", h.lines, want)
	}
	for _, line := range []string{"cut", " ", "three", "three", strings.Repeat("x", maxKept+1)} {
		if err := h.addLine(line, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.addLine("[paste 1: 300 characters]", false); err != nil {
		t.Fatal(err)
	}
	if got := historyLines(t, path); !slices.Equal(got[len(got)-2:], []string{"cut", "three"}) {
		t.Errorf("the file ends with %q", got)
	}
	if n := len(h.lines); n != 6 {
		t.Errorf("%d lines in memory, want 6", n)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	h = history{}
	for i := range 2 * maxHistory {
		if i == 0 {
			if err := h.openFile(link); err != nil {
				t.Fatal(err)
			}
		}
		h.lines = append(h.lines, fmt.Sprint(i))
	}
	if err := os.WriteFile(path, []byte(header+"\n"+strings.Join(h.lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.addLine("last", true); err != nil {
		t.Fatal(err)
	}
	if got := historyLines(t, path); len(got) != maxHistory || got[maxHistory-1] != "last" || got[0] != fmt.Sprint(maxHistory+1) {
		t.Errorf("%d lines, from %q to %q", len(got), got[0], got[len(got)-1])
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
}

// TestNoHistory: where there can be no file, lines are remembered all the same.
func TestNoHistory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"below a file": filepath.Join(file, "chat_history"), "folder": dir, "device": os.DevNull} {
		var h history
		if err := h.openFile(path); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := h.addLine("x", true); err != nil || len(h.lines) != 1 {
			t.Errorf("%s: %q, %v", name, h.lines, err)
		}
	}
}

// TestForeignFiles: lines go to a file that this program has made, or to an empty one, which
// nobody else can read then; nothing else is touched.
func TestForeignFiles(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		link    bool
		taken   bool
	}{
		"empty":                {"", false, true},
		"made here":            {header + "\none\n", false, true},
		"header cut by a kill": {header[:7], false, true},
		"another's":            {"export PATH=/bin\n", false, false},
		"blank lines":          {"\n\n", false, false},
		"header further down":  {"x\n" + header + "\n", false, false},
		"longer first line":    {header + "x\n", false, false},
		"link to one of ours":  {header + "\none\n", true, true},
		"link to another's":    {"export PATH=/bin\n", true, false},
		"link to an empty one": {"", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(c.content), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o666); err != nil { // whatever the mask is
				t.Fatal(err)
			}
			named := path
			if c.link {
				named = filepath.Join(t.TempDir(), "link")
				if err := os.Symlink(path, named); err != nil {
					t.Skip(err)
				}
			}
			var h history
			err := h.openFile(named)
			if (err == nil) != c.taken || err != nil && !errors.Is(err, ErrForeign) {
				t.Fatalf("error %v, want taken %v", err, c.taken)
			}
			if err := h.addLine("typed", true); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			info, statErr := os.Stat(path)
			if err != nil || statErr != nil {
				t.Fatal(err, statErr)
			}
			if !c.taken && (string(data) != c.content || info.Mode().Perm() != 0o666) {
				t.Errorf("%q, mode %v, want it untouched", data, info.Mode())
			}
			if c.taken && (!strings.HasPrefix(string(data), header+"\n") || !strings.HasSuffix(string(data), "\ntyped\n") || info.Mode().Perm() != 0o600) {
				t.Errorf("%q, mode %v, want the line added, for the owner alone", data, info.Mode())
			}
			if slices.Contains(h.lines, header) {
				t.Error("the header is a line of the history")
			}
		})
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(t.TempDir(), "nowhere"), link); err != nil {
		t.Skip(err)
	}
	var h history
	if err := h.openFile(link); !errors.Is(err, ErrForeign) {
		t.Errorf("a link that leads nowhere: error %v", err)
	}
}
