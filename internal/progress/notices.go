package progress

import (
	"fmt"
	"io"
	"sync"
)

// Notices writes lines to W, each of them once. It is safe for concurrent use; nil writes nothing.
type Notices struct {
	W io.Writer

	mu   sync.Mutex
	said map[string]bool
}

// Say writes the lines that have not been written.
func (n *Notices) Say(lines ...string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range lines {
		if n.said[line] {
			continue
		}
		if n.said == nil {
			n.said = map[string]bool{}
		}
		n.said[line] = true
		fmt.Fprintln(n.W, line)
	}
}
