package runs

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation/lineup"
	"glimpse/eviction"
	"glimpse/internal/bytesize"
	"glimpse/internal/stdin"
	"glimpse/internal/tables"
	"glimpse/model"
	"glimpse/model/hub"
)

// Describe says what the job would measure and what it needs: data, adapters and memory.
// It reads configurations alone, no weights. What is missing is told and is an error at
// the end.
func (j *Job) Describe(ctx context.Context, out, log io.Writer) error {
	complete := *j
	complete.Tasks = append([]Task(nil), j.Tasks...)
	missing := 0
	for i, t := range complete.Tasks { // tasks without data are told of below
		if t.Data == "" && complete.Data == "" {
			complete.Tasks[i].Data = absentData
		}
	}
	plans, err := complete.check()
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	list := strings.Join(complete.Policies, ",")
	names, err := lineup.PolicyNames(list)
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	var budgets []string
	for _, b := range complete.Budgets {
		budgets = append(budgets, b.String())
	}
	w := tables.New(tables.Column{}, tables.Column{Wrap: true})
	w.Add("policies", list)
	w.Add("budgets", strings.Join(budgets, ", "))
	longest := 0
	for _, p := range plans {
		longest = max(longest, p.setting.Tokens, p.setting.MaxPrompt)
		need := "makes its own prompts"
		switch {
		case p.selection.Task.Data == "":
		case p.setting.Data == absentData && p.selection.Task.NeedsData:
			need, missing = "MISSING data: "+p.selection.Task.Data, missing+1
		case p.setting.Data == absentData:
			need = "takes data: " + p.selection.Task.Data
		default:
			need = "data " + p.setting.Data
			if _, err := os.Stat(p.setting.Data); err != nil && !objectstore.IsURL(p.setting.Data) && p.setting.Data != stdin.Name {
				need, missing = "MISSING data "+p.setting.Data+": "+p.selection.Task.Data, missing+1
			}
		}
		w.Add("task "+p.name, need)
	}
	overrides, err := eviction.ParseOverrides(j.Set)
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	for _, s := range complete.Models {
		m, err := hub.OpenShapes(ctx, s.Model, j.S3, log, j.Device)
		if err != nil {
			return fmt.Errorf("eval: %w", err)
		}
		tokens := longest
		if tokens == 0 || tokens > m.Config.MaxPositions {
			tokens = m.Config.MaxPositions
		}
		pair := 2 * int64(m.Config.KVHeads) * int64(m.Config.HeadDim) * int64(m.Config.Layers) * cacheBytes(m)
		w.Add("model "+m.Name, fmt.Sprintf("%s of weights, a full cache of %s at %d tokens", bytesize.Memory(m.WeightBytes()), bytesize.Memory(pair*int64(tokens)), tokens))
		for _, what := range s.absent() {
			w.Add("  MISSING", what)
			missing++
		}
		for _, name := range names {
			needs, err := eviction.NeedsOf(name, overrides)
			if err != nil {
				return fmt.Errorf("eval: %w", err)
			}
			switch {
			case needs.Adapter != "" && len(s.Adapters) == 0 && s.Model != "":
				w.Add("  policy "+name, "MISSING an adapter: train one and give it with --adapter")
				missing++
			case needs.Pattern && s.Pattern == "" && s.Model != "":
				w.Add("  policy "+name, "needs a pattern: find one with evict patterns and give it with --pattern, or have it in the model's folder")
			}
		}
	}
	if err := w.Write(out, tables.Columns(out)); err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("eval: %d things are missing, see above", missing)
	}
	return nil
}

// absent are the folders of adapters and of a pattern that are not there.
func (s Subject) absent() (out []string) {
	look := func(what, spec string) {
		path := spec
		if _, dir, ok := strings.Cut(spec, "="); ok {
			path = dir
		}
		if _, err := os.Stat(path); err != nil && path != "" && path != lineup.Shipped && !objectstore.IsURL(path) {
			out = append(out, what+" "+path)
		}
	}
	for _, a := range s.Adapters {
		look("adapter", a)
	}
	look("pattern of retrieval heads", s.Pattern)
	return out
}

// absentData stands for data that was not given.
const absentData = "(none)"

func cacheBytes(m *model.Model) int64 { return int64(m.CacheDType().Size()) }
