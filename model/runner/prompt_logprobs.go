package runner

import (
	"cmp"

	"glimpse/internal/parallel"
	"glimpse/model"
)

// PromptLogProbs asks a pass what the model gives to the prompt's own tokens, each after those before it. Only the logits
// of a few rows are held at a time.
type PromptLogProbs struct {
	Top int // likeliest tokens in the place of each
	// Each receives the tokens in their order, from the second one on: the first follows nothing. The numbers are as of
	// GenerateOptions.OnLogProb.
	Each func(id int32, logProb float64, top []LogProb)
}

// promptLogProbRows is how many rows go through the head together: up to 16 have the bits that each has alone on the host.
const promptLogProbRows = 16

// tellLogProbs tells of the tokens that follow rows [from, to), which have left the last layer.
func (p *prefillPass) tellLogProbs(from, to int) error {
	m, asked := p.Model, p.opt.LogProbs
	for to = min(to, len(p.tokens)-1); from < to; from += promptLogProbRows {
		mark := p.arena.Mark()
		next := p.tokens[from+1 : min(from+promptLogProbRows, to)+1]
		h, y := p.norm(p.x.Rows(from, from+len(next)), m.Network.FinalNorm), p.alloc(len(next), m.Config.Vocab)
		headLogits(m, p.on, y, h)
		if !m.Counts() {
			told, err := logProbsOfRows(m, y.Float32s(), next, asked.Top)
			if err != nil {
				return err
			}
			for i, t := range told {
				asked.Each(next[i], t.logProb, t.top)
			}
		}
		p.arena.Release(mark)
		if err := p.between(); err != nil {
			return err
		}
	}
	return nil
}

// rowLogProbs is what a row of logits gives to a token.
type rowLogProbs struct {
	logProb float64
	top     []LogProb
}

// logProbsOfRows are the numbers of ids, one of each row of logits [len(ids), vocab].
func logProbsOfRows(m *model.Model, logits []float32, ids []int32, top int) ([]rowLogProbs, error) {
	out, failed := make([]rowLogProbs, len(ids)), make([]error, len(ids))
	vocab := m.Config.Vocab
	parallel.For(len(ids), func(i int) {
		row := logits[i*vocab:][:vocab]
		if failed[i] = checkLogits(m, row); failed[i] == nil {
			out[i].logProb, out[i].top, failed[i] = HostLogits(row).LogProbs(ids[i], top)
		}
	})
	return out, cmp.Or(failed...)
}
