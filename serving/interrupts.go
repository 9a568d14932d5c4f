package serving

import "sync"

// interrupts are those of a person at the terminal: the first ends the answer, and the second
// in a row the conversation.
type interrupts struct {
	mu     sync.Mutex
	count  int    // since something was said
	cancel func() // the turn under way; nil: there is none
}

// take counts one and ends the turn under way; false: it is not the first.
func (s *interrupts) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if s.count > 1 {
		return false
	}
	if s.cancel != nil {
		s.cancel()
	}
	return true
}

// begin begins a turn, which cancel ends.
func (s *interrupts) begin(cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.cancel = 0, cancel
}

func (s *interrupts) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = nil
}
