package jobs

import "context"

// Agree is what a process does before its first result.
func (w *Work) Agree(ctx context.Context, own []byte) (other []byte, err error) {
	return w.agree(ctx, own)
}
