package model

import (
	"glimpse/kernels"
)

// QueryRows are rows that are run after a prompt, observed and dropped. Row r stands
// at the position of the r-th token after the prompt, unless they are [ShiftedTokens].
type QueryRows interface {
	// Rows is the number of rows, at least 1.
	Rows() int
	// Embeddings writes the rows' input embeddings into dst [rows, hidden], of the
	// compute type.
	Embeddings(m *Model, dst *kernels.Tensor)
	// Tokens are what the rows are embeddings of; nil where they are learned.
	Tokens() []int32
	// LowRank returns the low-rank update of a module that acts on these rows only,
	// or nil.
	LowRank(layer int, module Module) *LowRank
}

// LowRank is a LoRA update of a linear layer: y += Scale · (x Aᵀ) Bᵀ
// (Hu et al. 2022, arXiv:2106.09685, eq. 3; Scale is α/r). A is [r, in], B [out, r],
// both of the compute type.
type LowRank struct {
	A, B  *kernels.Tensor
	Scale float64
}

// expert is the part of an expert, one of so many.
func (u *LowRank) expert(e, experts int) *LowRank {
	r, out := u.A.Dim0()/experts, u.B.Dim0()/experts
	return &LowRank{A: u.A.Rows(e*r, (e+1)*r), B: u.B.Rows(e*out, (e+1)*out), Scale: u.Scale}
}

// RowUpdate is a low-rank update of rows [From, To) of a pass, or of all where To is 0.
type RowUpdate struct {
	*LowRank
	From, To int
}

// RowsOf is the rows of x that u acts on.
func (u *RowUpdate) RowsOf(x *kernels.Tensor) *kernels.Tensor {
	if u.To == 0 {
		return x
	}
	return x.Rows(u.From, u.To)
}

// TokenRows are QueryRows of ordinary tokens: a response under teacher forcing, or
// pseudo-queries.
type TokenRows []int32

// Rows implements QueryRows.
func (t TokenRows) Rows() int { return len(t) }

// Embeddings implements QueryRows.
func (t TokenRows) Embeddings(m *Model, dst *kernels.Tensor) {
	m.Backend.Gather(dst, m.Network.Embedding, t)
}

// Tokens implements QueryRows.
func (t TokenRows) Tokens() []int32 { return t }

// LowRank implements QueryRows; tokens have none.
func (t TokenRows) LowRank(int, Module) *LowRank { return nil }

// ShiftedTokens are TokenRows that stand By positions after the tokens that follow
// the prompt, before them where By is negative, and not before the first position. They see
// the whole prompt wherever they stand.
type ShiftedTokens struct {
	TokenRows
	By int
}

// RepeatedTokens are TokenRows that repeat the entries [From, To) of a prompt. What is observed of them are the
// probabilities among the first Sinks entries, these entries and the rows themselves, as if the cache held no others; the
// rows attend to all of it (KVzip, Kim et al., arXiv:2505.23416, §3.4). No other entry is seen to be read.
type RepeatedTokens struct {
	TokenRows
	Sinks, From, To int
	// Weighed multiplies the probability that a query head of a row pays to an entry by ‖W v‖/‖h‖: v is the entry's value, W the
	// head's part of OProj, h what QProj reads of the row (KVzip+, Jeblick & Jégou, arXiv:2601.07891).
	Weighed bool
}
