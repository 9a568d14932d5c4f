package progress

import (
	"bytes"
	"sync"
	"testing"
)

// TestNotices: each line once, whoever says it.
func TestNotices(t *testing.T) {
	var out bytes.Buffer
	n := &Notices{W: &out}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				n.Say("a", "a")
			}
		})
	}
	wg.Wait()
	n.Say()
	n.Say("b", "a")
	if out.String() != "a\nb\n" {
		t.Errorf("got %q", out.String())
	}
	(*Notices)(nil).Say("c")
}
