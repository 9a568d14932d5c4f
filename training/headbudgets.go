package training

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"glimpse/eviction"
	"glimpse/jobs"
	"glimpse/model"
)

// HeadBudgetsRun learns budgets of heads: what each KV head keeps of contexts under the one ranking of a label.
type HeadBudgetsRun struct {
	Model *model.Model
	// Label is the policy whose heads have one ranking (head-budgets=global): kvzip for contexts of which anything may be asked,
	// oracle for prompts whose responses are known.
	Label    *eviction.Configured
	Text     string    // of the label, with its options
	Budgets  []float64 // shares of a context
	Contexts int
	Next     func() (context, response []int32, err error) // response may be nil; the same contexts in each run
	From     string                                        // where contexts come from, which a run that goes on compares
	Partial  string                                        // file of what was measured, from which a run goes on
	Progress func(done int)
}

// headBudgetsHeader is the first line of a partial file.
type headBudgetsHeader struct {
	SHA256  string    `json:"sha256"`
	Label   string    `json:"label"`
	Budgets []float64 `json:"budgets"`
	From    string    `json:"from"`
}

// headBudgetsRow is what was measured of one context.
type headBudgetsRow struct {
	Tokens int           `json:"tokens"`
	SHA256 string        `json:"sha256"` // of its tokens and the response's
	Shares [][][]float64 `json:"shares"` // [budget][layer][kvHead]
}

// Run learns the budgets. Every context is kept when it is measured: after a kill the next run goes on behind it.
func (r *HeadBudgetsRun) Run(ctx context.Context) (*eviction.HeadBudgets, error) {
	sum, err := r.Model.SHA256(ctx)
	if err != nil {
		return nil, err
	}
	header := headBudgetsHeader{sum, r.Text, r.Budgets, r.From}
	rows, f, err := r.resume(header)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rt := eviction.NewRuntime(r.Model)
	tokens := 0
	var contexts [][][][]float64
	for i := range r.Contexts {
		ids, response, err := r.Next()
		if err != nil {
			return nil, err
		}
		hash := sumOfTokens(ids, response)
		if i >= len(rows) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			shares, err := rt.SharesOf(ctx, r.Label, ids, response, r.Budgets)
			if err != nil {
				return nil, fmt.Errorf("context %d: %w", i+1, err)
			}
			rows = append(rows, headBudgetsRow{len(ids), hash, shares})
			line, err := json.Marshal(rows[i])
			if err == nil {
				_, err = f.Write(append(line, '\n'))
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Partial, err)
			}
		} else if rows[i].SHA256 != hash {
			return nil, fmt.Errorf("%s: context %d is another one now: the data have changed since the run was begun; remove the file to begin anew", r.Partial, i+1)
		}
		contexts = append(contexts, rows[i].Shares)
		tokens += len(ids)
		r.Progress(i + 1)
	}
	b := eviction.MeanShares(r.Model, r.Budgets, contexts)
	b.SHA256, b.Label, b.Tokens = sum, r.Text, tokens
	return b, nil
}

// sumOfTokens is the SHA-256 of a context and its response.
func sumOfTokens(ids, response []int32) string {
	h := sha256.New()
	for _, part := range [][]int32{ids, response} {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		for _, id := range part {
			h.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// resume reads what an earlier run has measured and opens the file behind it. A line that was cut is measured anew.
func (r *HeadBudgetsRun) resume(want headBudgetsHeader) (rows []headBudgetsRow, f *os.File, err error) {
	head, err := json.Marshal(want)
	if err != nil {
		return nil, nil, err
	}
	begun := false
	f, err = jobs.ReopenLines(r.Partial, func(line []byte) (bool, error) {
		if !begun {
			if begun = bytes.Equal(line, head); !begun {
				return false, fmt.Errorf("%s is of other settings: %.200s; want those of this run (%.200s), or remove it", r.Partial, line, head)
			}
			return true, nil
		}
		var row headBudgetsRow
		if json.Unmarshal(line, &row) != nil || len(row.Shares) != len(r.Budgets) {
			return false, nil
		}
		rows = append(rows, row)
		return true, nil
	})
	if err == nil && !begun {
		if _, err = f.Write(append(head, '\n')); err != nil {
			f.Close()
		}
	}
	return rows, f, err
}
