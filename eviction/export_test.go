package eviction

// SelectedOnHost is what the host's rules keep of the scores that a plan was made by;
// nil where budgets cross layers or two numbers per entry decide.
func SelectedOnHost(p *Plan) [][][]int32 {
	r := p.request
	_, crosses := r.method.(CrossLayerAllocator)
	_, spreads := r.method.(SpreadScorer)
	if crosses || spreads || p.Scores == nil {
		return nil
	}
	var out [][][]int32
	for l, scores := range p.Scores {
		out = append(out, selectLayer(r.method, r.prompt, l, scores))
	}
	return out
}
