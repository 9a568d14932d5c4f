package serving

import (
	"strings"
	"testing"
	"time"
)

// TestComparison: a difference within the spread of either side is none, whatever the medians say.
func TestComparison(t *testing.T) {
	for _, c := range []struct {
		name           string
		evicted, plain []int // milliseconds in the order of measuring, the first not counted
		want           string
	}{
		{"slower", []int{500, 12, 13, 12, 14, 12, 13, 90}, []int{9, 10, 10, 11, 10, 10, 10, 10}, "with eviction 13.0 ms (12.0 to 14.0), plain prefill 10.0 ms (10.0 to 10.0): 30% slower"},
		{"faster", []int{1, 5, 5, 5, 5, 5, 5, 5}, []int{1, 10, 9, 10, 10, 8, 10, 7}, "50% faster"},
		{"spread", []int{10, 10, 14, 20, 8, 10, 15, 12}, []int{10, 10, 11, 9, 16, 10, 13, 10}, "no difference beyond their spread"},
		{"one outlier", []int{10, 10, 10, 10, 10, 10, 10, 10}, []int{10, 400, 10, 10, 10, 10, 10, 10}, "no difference beyond their spread"},
	} {
		rounds := make(map[bool]int)
		order := ""
		got, err := compareTimes(func(evicted bool) (time.Duration, error) {
			times, side := c.plain, "p"
			if evicted {
				times, side = c.evicted, "e"
			}
			order += side
			d := time.Duration(times[rounds[evicted]]) * time.Millisecond
			rounds[evicted]++
			return d, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(got.String(), c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if order != strings.Repeat("pe", comparisonRounds+1) {
			t.Errorf("%s: measured in the order %s, want both in turn", c.name, order)
		}
	}
}
