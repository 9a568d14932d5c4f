package main

import (
	"encoding/json"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// TestTimes: times are measured where they are asked for, announced, and counted by policy and budget;
// the full cache adds nothing to itself.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		flag        []string
		ttft, speed bool
	}{{nil, false, false}, {[]string{"--times", "none"}, false, false}, {[]string{"--times", "ttft"}, true, false}, {[]string{"--times", "all"}, true, true}} {
		t.Run(strings.Join(c.flag, "_"), func(t *testing.T) {
			out, log, err := execute(t, append([]string{"eval", "--policy", "full,snapkv", "--budget", "16,32", "--task", "section,needle", "--tokens", "96", "--samples", "1", "--json"}, c.flag...)...)
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Rows []evaluation.Row }
			if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Rows) != 6 {
				t.Fatalf("%v in %s", err, out)
			}
			for _, r := range got.Rows {
				if (r.TTFTMillis != nil) != c.ttft || (r.DecodeTokensPerSecond != nil) != c.speed {
					t.Errorf("%s: time to first token %v, speed %v", r.Label(), r.TTFTMillis, r.DecodeTokensPerSecond)
				}
				if (r.TTFTOverhead != nil) != (c.ttft && r.Policy != "full") {
					t.Errorf("%s adds %v to a plain prefill", r.Label(), r.TTFTOverhead)
				}
			}
			for _, want := range []string{"times of 2 policies at every budget, on the first prompt of 2 tasks: about ", "6/6 timings  100%"} {
				if strings.Contains(log, want) != c.ttft {
					t.Errorf("log %q, want %q in it: %t", log, want, c.ttft)
				}
			}
		})
	}
	if _, _, err := execute(t, "eval", "--times", "some"); err == nil || !strings.Contains(err.Error(), `times: got "some", want none, ttft or all`) {
		t.Errorf("got %v", err)
	}
}
