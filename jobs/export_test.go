package jobs

import "context"

// Agree is what a process does before its first result.
func (w *Work) Agree(ctx context.Context, own []byte) (other []byte, err error) {
	return w.agree(ctx, own)
}

// Worker is the lock of a process.
func (w *Work) Worker() string { return w.worker() }

// Release is what the system does when a process dies.
func (c *Claim) Release() { c.release() }
