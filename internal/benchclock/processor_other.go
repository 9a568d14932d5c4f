//go:build !unix

package benchclock

import "time"

func processorTime() (time.Duration, bool) { return 0, false }
