package console

import (
	"fmt"
	"slices"
	"time"
)

const (
	// comparisonRounds is how often each side is measured at most, comparisonWithin the time after which
	// no further round is begun.
	comparisonRounds = 7
	comparisonWithin = 20 * time.Second
	// fewRounds are too few to tell a difference from chance.
	fewRounds = 2
)

// comparison are times to the first token with a policy and without eviction, ascending.
type comparison struct{ evicted, plain []time.Duration }

// compareTimes measures both sides in turn, so that what else the machine does meets both. The first
// round does not count, unless it took long enough to be no warm-up. told (may be nil) is told of every
// prefill that is done.
func compareTimes(prefill func(evicted bool) (time.Duration, error), told func()) (comparison, error) {
	var c comparison
	begun := time.Now()
	for round := range comparisonRounds + 1 {
		taken := time.Since(begun)
		if round > 0 && taken > comparisonWithin {
			break
		}
		if round == 1 && taken < patience {
			c = comparison{}
		}
		for _, evicted := range []bool{false, true} {
			d, err := prefill(evicted)
			switch {
			case err != nil:
				return comparison{}, err
			case evicted:
				c.evicted = append(c.evicted, d)
			default:
				c.plain = append(c.plain, d)
			}
			if told != nil {
				told()
			}
		}
	}
	slices.Sort(c.evicted)
	slices.Sort(c.plain)
	return c, nil
}

// String is one line. A side is faster where three quarters of its times are below three
// quarters of the other's; everything else is no difference, and a few rounds tell none.
func (c comparison) String() string {
	n := len(c.plain)
	low, high := n/4, n-1-n/4
	evicted, plain := c.evicted[n/2], c.plain[n/2]
	verdict := "no difference beyond their spread"
	switch {
	case n <= fewRounds:
		verdict = "too few to tell a difference"
	case c.evicted[high] < c.plain[low]:
		verdict = fmt.Sprintf("%.0f%% faster", 100*(1-float64(evicted)/float64(plain)))
	case c.plain[high] < c.evicted[low]:
		verdict = fmt.Sprintf("%.0f%% slower", 100*(float64(evicted)/float64(plain)-1))
	}
	return fmt.Sprintf("time to first token, median of %d (middle half): with eviction %.1f ms (%.1f to %.1f), plain prefill %.1f ms (%.1f to %.1f): %s",
		n, ms(evicted), ms(c.evicted[low]), ms(c.evicted[high]), ms(plain), ms(c.plain[low]), ms(c.plain[high]), verdict)
}
