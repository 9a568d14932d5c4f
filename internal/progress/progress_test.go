package progress

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ofWidth makes a bar believe that its writer is one of that width.
func ofWidth(columns int) Option {
	return func(b *Bar) { b.columns = func() int { return columns } }
}

func TestLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := New(&out, "steps", 200)
		for range 50 { // 25 s: lines at 10 s and 20 s
			time.Sleep(500 * time.Millisecond)
			b.Add(1)
		}
		b.SetText("loss 0.5")
		b.Done()
		want := " 20/200 steps   10%  2 steps/s  1m30s left\n" +
			" 40/200 steps   20%  2 steps/s  1m20s left\n" +
			" 50/200 steps   25%  2 steps/s  in 25s  loss 0.5\n"
		if out.String() != want {
			t.Errorf("log\n%swant\n%s", out.String(), want)
		}
	})
}

// A loop of less than 10 seconds has a line for each tenth, none per step, and what an
// earlier run has done is no progress of this one.
func TestLogLinesOfTenths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := New(&out, "steps", 1000)
		b.Skip(650)
		for i := range 350 {
			time.Sleep(10 * time.Millisecond)
			b.SetText(fmt.Sprintf("loss %d", 350-i))
			b.Add(1)
		}
		b.Done()
		want := " 700/1000 steps   70%  100 steps/s  3s left  loss 301\n" +
			" 800/1000 steps   80%  100 steps/s  2s left  loss 201\n" +
			" 900/1000 steps   90%  100 steps/s  1s left  loss 101\n" +
			"1000/1000 steps  100%  100 steps/s  in 3.5s  loss 1\n"
		if out.String() != want {
			t.Errorf("log\n%swant\n%s", out.String(), want)
		}
	})
}

func TestFacts(t *testing.T) {
	cases := []struct {
		name    string
		total   int64
		skip    int64
		add     int64
		elapsed time.Duration
		want    string
	}{
		{"nothing yet", 10, 0, 0, 0, " 0/10 units    0%"},
		{"no time has passed", 10, 0, 1, 0, " 1/10 units   10%"},
		{"skipped units are not in the rate", 100, 50, 10, 10 * time.Second, " 60/100 units   60%  1 units/s  40s left"},
		{"only skipped", 100, 50, 0, time.Second, " 50/100 units   50%"},
		{"unknown total", 0, 0, 30, 10 * time.Second, "30 units  3 units/s"},
		{"negative total", -1, 0, 30, 10 * time.Second, "30 units  3 units/s"},
		{"more than promised", 10, 0, 12, 6 * time.Second, "12/10 units  120%  2 units/s"},
		{"slow units are given by their time", 10, 0, 1, 90 * time.Second, " 1/10 units   10%  90 s each  13m30s left"},
		{"fast", 1e6, 0, 5e5, time.Second, " 500000/1000000 units   50%  500000 units/s  1s left"},
		{"remaining time beyond a Duration", 1 << 62, 0, 1, time.Minute, "                  1/4611686018427387904 units    0%  60 s each"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := New(io.Discard, "units", c.total)
			b.Skip(c.skip)
			b.Add(c.add)
			if got := b.facts(c.elapsed); got != c.want {
				t.Errorf("facts %q, want %q", got, c.want)
			}
		})
	}
}

func TestTerminalRedrawsOneLineAtMostTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := New(&out, "tokens", 2000, ofWidth(100))
		for range 2000 { // 2 s
			b.Add(1)
			time.Sleep(time.Millisecond)
		}
		b.SetText("done\nand\x1b[2Jdusted")
		b.Done()
		draws := strings.Split(strings.ReplaceAll(out.String(), "\x1b[J\r", "\x1b[J"), "\r")[1:]
		if n := len(draws); n < 15 || n > 21 {
			t.Errorf("%d draws in 2 s, want about 20 and at most 21", n)
		}
		if want := "[>                   ]    1/2000 tokens    0%\x1b[J"; draws[0] != want {
			t.Errorf("first draw %q, want %q", draws[0], want)
		}
		last := "[====================] 2000/2000 tokens  100%  1000 tokens/s  in 2s  done and [2Jdusted\x1b[J\n"
		if draws[len(draws)-1] != last {
			t.Errorf("last draw %q, want %q", draws[len(draws)-1], last)
		}
		if strings.Count(out.String(), "\n") != 1 {
			t.Errorf("more than one line end in %q", out.String())
		}
	})
}

func TestTerminalLineNeverFillsTheWidth(t *testing.T) {
	for _, columns := range []int{1, 2, 20, 40, 60} {
		var out bytes.Buffer
		b := New(&out, "tokens", 2000, ofWidth(columns))
		b.SetText(strings.Repeat("é", 100))
		b.Add(1)
		line := strings.TrimSuffix(strings.TrimPrefix(out.String(), "\r"), "\x1b[J\r")
		if n := len([]rune(line)); n != columns-1 {
			t.Errorf("%d columns: line of %d characters %q, want %d", columns, n, line, columns-1)
		}
	}
}

func TestDoneEndsTheBar(t *testing.T) {
	var out bytes.Buffer
	b := New(&out, "steps", 2)
	b.Done()
	first := out.String()
	if strings.Count(first, "\n") != 1 {
		t.Errorf("Done wrote %q, want one line", first)
	}
	b.Done()
	b.Add(1)
	b.SetText("late")
	b.Done()
	if out.String() != first {
		t.Errorf("after Done: %q, want no more than %q", out.String(), first)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenWriterIsIgnored(t *testing.T) {
	b := New(brokenWriter{}, "steps", 1)
	b.Add(1)
	b.Done()
}

// Run under the race detector; the count itself must be exact, and lines whole.
func TestConcurrentUse(t *testing.T) {
	var out bytes.Buffer
	b := New(&out, "steps", 800)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				b.SetText("busy")
				b.Add(1)
			}
		})
	}
	wg.Wait()
	b.Done()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 10 || !strings.HasPrefix(lines[9], "800/800 steps") {
		t.Errorf("%d lines, the last %q; want one for each tenth and 800/800", len(lines), lines[len(lines)-1])
	}
}

func TestBytesHaveUnits(t *testing.T) {
	var out bytes.Buffer
	b := New(&out, Bytes, 2_470_000_000)
	b.Skip(1_500_000)
	b.Done()
	if got, want := out.String(), "1.5 MB/2.5 GB    0%  in 0s\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := formatRate(9_912_345, Bytes), "9.9 MB/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAfter: a short loop shows nothing, a long one a line once it is late and then every 10 seconds; on a
// terminal nothing of it stays.
func TestAfter(t *testing.T) {
	for _, c := range []struct {
		name     string
		each     time.Duration
		options  []Option
		want     []string
		terminal bool
	}{
		{"short", 100 * time.Millisecond, nil, nil, false},
		{"long", 3 * time.Second, nil, []string{" 1/10 steps   10%  0.333 steps/s  27s left", " 5/10 steps   50%  0.333 steps/s  15s left", " 9/10 steps   90%  0.333 steps/s  3s left"}, false},
		{"short on a terminal", 100 * time.Millisecond, []Option{ofWidth(80)}, nil, true},
		{"long on a terminal", 3 * time.Second, []Option{ofWidth(80)}, []string{"1/10 steps", "10/10 steps"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				b := New(&out, "steps", 10, append(c.options, After(2*time.Second))...)
				for range 10 {
					time.Sleep(c.each)
					b.Add(1)
				}
				b.Done()
				if !c.terminal {
					if got := strings.Join(c.want, "\n"); strings.TrimSuffix(out.String(), "\n") != got {
						t.Errorf("got %q, want %q", out.String(), got)
					}
					return
				}
				for _, want := range c.want {
					if !strings.Contains(out.String(), want) {
						t.Errorf("got %q, want %q in it", out.String(), want)
					}
				}
				if len(c.want) == 0 && out.Len() > 0 || len(c.want) > 0 && !strings.HasSuffix(out.String(), "\r\x1b[J") {
					t.Errorf("%q is left on the terminal", out.String())
				}
			})
		})
	}
}
