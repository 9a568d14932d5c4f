package console

import (
	"io"
	"sync/atomic"
	"time"

	"glimpse/internal/progress"
	"glimpse/model/runner"
)

// patience is how long nothing is said of work that nobody has been told of.
const patience = 2 * time.Second

// ShowPrefill shows on w how far a pass over a prompt has come, where it takes longer than 2 seconds.
func ShowPrefill(w io.Writer) runner.Progress {
	return func(tokens int) func(more int) {
		bar := progress.New(w, "prompt tokens", int64(tokens), progress.After(patience))
		var done atomic.Int64
		return func(more int) {
			bar.Add(int64(more))
			if done.Add(int64(more)) == int64(tokens) {
				bar.Done()
			}
		}
	}
}
