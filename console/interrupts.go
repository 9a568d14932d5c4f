package console

import "sync"

// interrupts come from a person at the terminal: the first ends the answer, and the second
// in a row the conversation.
type interrupts struct {
	mu     sync.Mutex
	keys   bool   // between turns Ctrl-C is a key that the editor reads, not a signal
	count  int    // since something was said
	late   bool   // a signal was not counted since then
	cancel func() // the turn under way; nil: there is none
}

// takeInterrupt counts one and ends the turn under way; false: it is not the first.
func (s *interrupts) takeInterrupt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counted()
}

// signal is take of a signal. On a busy machine one may come after the turn that it was meant
// for: with an editor the first that finds no turn is not counted.
func (s *interrupts) signal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys && s.cancel == nil && !s.late {
		s.late = true
		return true
	}
	return s.counted()
}

func (s *interrupts) counted() bool {
	s.count++
	if s.count > 1 {
		return false
	}
	if s.cancel != nil {
		s.cancel()
	}
	return true
}

// beginTurn begins a turn, which cancel ends.
func (s *interrupts) beginTurn(cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.late, s.cancel = 0, false, cancel
}

func (s *interrupts) endTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = nil
}
