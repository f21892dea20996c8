(function () {
  'use strict';
  var box = document.getElementById('workspace');
  if (!box || !window.EventSource) return;
  var name = box.dataset.name, back = box.dataset.back, shown = box.dataset.shown;
  var events = new EventSource('/api/v1/workspaces/' + name + '/events');
  function put(id, text) {
    var element = document.getElementById(id);
    element.textContent = text || '';
    element.hidden = !text;
  }
  function list(blockers) {
    var left = document.getElementById('left');
    left.textContent = '';
    blockers.forEach(function (blocker) {
      var row = document.createElement('li');
      row.textContent = [blocker.object, blocker.finalizers.join(', '), blocker.message].filter(Boolean).join(': ');
      left.appendChild(row);
    });
  }
  events.addEventListener('state', function (event) {
    var state = JSON.parse(event.data);
    if (back && state.desired === 'Running' && state.actual === 'Running' && state.connected) {
      events.close();
      location.replace(back);
      return;
    }
    var now = [state.desired, state.actual, state.connected].join(' ');
    if (now !== shown && ['Running', 'Stopped', 'Failed', 'Error', 'Terminated'].indexOf(state.actual) >= 0) {
      events.close();
      location.reload();
      return;
    }
    put('state', state.actual);
    put('reason', state.reason);
    list(state.blockers);
  });
  // It comes with a page that says when, and has the button that puts it off.
  events.addEventListener('idle', function (event) {
    var near = ['announced', 'near'].indexOf(JSON.parse(event.data).stage) >= 0;
    if (near !== Boolean(document.querySelector('.idle.warn'))) {
      events.close();
      location.reload();
    }
  });
  events.addEventListener('end', function () { events.close(); });
  // Whoever pressed a button is on the way to another page: what is told meanwhile must not load this one again.
  addEventListener('beforeunload', function () { events.close(); });
})();
