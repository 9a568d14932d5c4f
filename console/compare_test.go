package console

import (
	"strings"
	"testing"
	"testing/synctest"
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
		}, nil)
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

// TestComparisonIsBounded: slow prefills are measured less often, from the first one on, and a few tell
// no difference.
func TestComparisonIsBounded(t *testing.T) {
	for _, c := range []struct {
		name           string
		plain, evicted time.Duration
		prefills       int
		want           string
	}{
		{"milliseconds", 20 * time.Millisecond, 10 * time.Millisecond, 16, "median of 7 (middle half): with eviction 10.0 ms (10.0 to 10.0), plain prefill 20.0 ms (20.0 to 20.0): 50% faster"},
		{"seconds", 3 * time.Second, 6 * time.Second, 6, "median of 3 (middle half): with eviction 6000.0 ms (6000.0 to 6000.0), plain prefill 3000.0 ms (3000.0 to 3000.0): 100% slower"},
		{"a minute", 20 * time.Second, 40 * time.Second, 2, "plain prefill 20000.0 ms (20000.0 to 20000.0): too few to tell a difference"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				got, err := compareTimes(func(evicted bool) (time.Duration, error) {
					d := c.plain
					if evicted {
						d = c.evicted
					}
					time.Sleep(d)
					return d, nil
				}, func() { told++ })
				if err != nil || told != c.prefills || !strings.HasSuffix(got.String(), c.want) {
					t.Errorf("%d prefills, want %d: %v, want %s, error %v", told, c.prefills, got, c.want, err)
				}
			})
		})
	}
}
