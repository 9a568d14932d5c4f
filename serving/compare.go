package serving

import (
	"fmt"
	"slices"
	"time"
)

// comparisonRounds is how often each side is measured.
const comparisonRounds = 7

// comparison are times to the first token with a policy and without eviction, ascending.
type comparison struct{ evicted, plain []time.Duration }

// compareTimes measures both sides in turn, so that what else the machine does meets both,
// after one of each that is not counted.
func compareTimes(prefill func(evicted bool) (time.Duration, error)) (comparison, error) {
	var c comparison
	for round := range comparisonRounds + 1 {
		for _, evicted := range []bool{false, true} {
			d, err := prefill(evicted)
			switch {
			case err != nil:
				return comparison{}, err
			case round == 0:
			case evicted:
				c.evicted = append(c.evicted, d)
			default:
				c.plain = append(c.plain, d)
			}
		}
	}
	slices.Sort(c.evicted)
	slices.Sort(c.plain)
	return c, nil
}

// String is one line. A side is faster where three quarters of its times are below three
// quarters of the other's; everything else is no difference.
func (c comparison) String() string {
	n := len(c.plain)
	low, high := n/4, n-1-n/4
	evicted, plain := c.evicted[n/2], c.plain[n/2]
	verdict := "no difference beyond their spread"
	switch {
	case c.evicted[high] < c.plain[low]:
		verdict = fmt.Sprintf("%.0f%% faster", 100*(1-float64(evicted)/float64(plain)))
	case c.plain[high] < c.evicted[low]:
		verdict = fmt.Sprintf("%.0f%% slower", 100*(float64(evicted)/float64(plain)-1))
	}
	return fmt.Sprintf("time to first token, median of %d (middle half): with eviction %.1f ms (%.1f to %.1f), plain prefill %.1f ms (%.1f to %.1f): %s",
		n, ms(evicted), ms(c.evicted[low]), ms(c.evicted[high]), ms(plain), ms(c.plain[low]), ms(c.plain[high]), verdict)
}
