package console

import "testing"

// TestLateInterrupt: a signal that comes after its answer, and after what was said next, does
// not make the next key the second in a row.
func TestLateInterrupt(t *testing.T) {
	s := interrupts{keys: true}
	s.beginTurn(func() { t.Error("a turn that has ended is cancelled") })
	s.endTurn()
	s.beginTurn(nil)
	if !s.signal() || !s.takeInterrupt() || s.takeInterrupt() {
		t.Error("want the signal and the first key taken, and the second key not")
	}
	// Signals that nobody typed end the conversation as keys do.
	s.beginTurn(nil)
	for i, want := range []bool{true, true, false} {
		if got := s.signal(); got != want {
			t.Errorf("signal %d: taken is %v, want %v", i+1, got, want)
		}
	}
	// Without an editor they are all that Ctrl-C is.
	s = interrupts{}
	if !s.signal() || s.signal() {
		t.Error("want the first signal taken and the second one not")
	}
}
