package node

import (
	"context"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Leave is api.Leave: a node takes itself out.
func (s *Service) Leave(ctx context.Context, req api.LeaveRequest) (res api.LeaveResponse, err error) {
	node := auth.From(ctx).Node
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		if err := check(tx, node); err != nil {
			return err
		}
		running, err := s.Running(tx, node)
		if err != nil {
			return err
		}
		if len(running) > 0 && !req.Force {
			e := api.Errorf(api.WorkloadsRunning, "%d deployments may have instances on this node; remove their apps first, or leave with force", len(running))
			e.Workloads = running
			return e
		}
		return s.shutOut(tx, node, api.StatusLeft, "node_left")
	})
	return api.LeaveResponse{Status: api.StatusLeft}, err
}
