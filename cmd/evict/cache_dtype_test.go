package main

import (
	"strings"
	"testing"
)

// TestCacheDType: caches in bf16 take half the memory of what reports count, and give
// the answers of the others.
func TestCacheDType(t *testing.T) {
	row := func(dtype string) map[string]any {
		out, _, err := execute(t, "eval", "--cache-dtype", dtype, "--policy", "snapkv", "--budget", "16", "--task", "needle", "--tokens", "72", "--samples", "2", "--json")
		if err != nil {
			t.Fatal(err)
		}
		var rows []map[string]any
		if err := unmarshalRows(out, &rows); err != nil || len(rows) != 1 {
			t.Fatal(err, rows)
		}
		return rows[0]
	}
	wide, half, auto := row("float32"), row("bf16"), row("auto")
	for _, key := range []string{"kept_bytes", "full_bytes", "traffic_bytes_per_step"} {
		if got, want := half[key].(float64), wide[key].(float64); 2*got != want || want == 0 || auto[key] != wide[key] {
			t.Errorf("%s: %v in bf16 and %v in float32, on the CPU's own choice %v", key, got, want, auto[key])
		}
	}
	if q8 := row("q8_0"); q8["kept_bytes"].(float64)*32/8.5 != wide["kept_bytes"].(float64) || q8["score"] != wide["score"] {
		t.Errorf("in q8_0 %v bytes and accuracy %v, in float32 %v and %v", q8["kept_bytes"], q8["score"], wide["kept_bytes"], wide["score"])
	}
	if half["score"] != wide["score"] {
		t.Errorf("accuracy %v in bf16, %v in float32", half["score"], wide["score"])
	}
	for _, command := range [][]string{{"run", "--example", "section"}, {"chat"}, {"eval"}} {
		if _, _, err := execute(t, append(command, "--cache-dtype", "int3")...); err == nil || !strings.Contains(err.Error(), `cache dtype: got "int3", want auto, float32, bf16, fp8, q4_0, `) {
			t.Errorf("%s: error %v", command[0], err)
		}
	}
}
