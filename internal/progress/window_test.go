package progress

import (
	"slices"
	"strings"
	"testing"

	"glimpse/internal/terminaltest"
)

// TestNarrowWindow: however the window changes, and whether the terminal wraps lines anew
// or cuts them, nothing is left of the bar but its last line, and nothing above it is lost.
func TestNarrowWindow(t *testing.T) {
	for _, reflow := range []bool{false, true} {
		screen := &terminaltest.Screen{Columns: 100, Reflow: reflow}
		out := NewOutput(screen)
		out.Write([]byte("before\n"))
		b := New(out, "steps", 100, func(b *Bar) { b.columns = func() int { return screen.Columns } })
		b.SetText("loss " + strings.Repeat("x", 100))
		for _, columns := range []int{100, 40, 17, 60, 59, 30, 120, 20} {
			screen.Resize(columns)
			b.last = b.start.Add(-redrawEvery)
			b.Add(1)
			want := []string{"before", screen.Rows()[1]}
			if rows := screen.Rows(); !slices.Equal(rows, want) || len([]rune(rows[1])) > columns-1 || !strings.Contains(rows[1], "/100 step") {
				t.Fatalf("reflow %v: %d columns:\n%s", reflow, columns, screen)
			}
		}
		screen.Resize(12)
		out.Write([]byte("a message\n"))
		screen.Resize(80)
		b.last = b.start.Add(-redrawEvery)
		b.Add(1)
		screen.Resize(50)
		out.Clear()
		out.Write([]byte("$ "))
		if got, want := screen.Rows(), []string{"before", "a message", "$"}; !slices.Equal(got, want) || screen.Err() != nil {
			t.Errorf("reflow %v: %q, want %q (%v)", reflow, got, want, screen.Err())
		}
	}
}
